//! Cutting GPUs into instances: what a board offers, how instances can lie, and how to get there with least harm.
//!
//! - [`Profile`], [`Placement`], [`Instance`], [`Geometry`]: names, places and sets of instances that fit together
//! - [`Board`], [`Catalogue`]: what a model of GPU offers
//! - [`Fleet`], [`Demand`]: GPUs as they are, and what is wanted of them
//! - [`Online`], [`Policy`]: one request after the other
//! - [`plan()`], [`reshape`], [`defragment`]: what to change; [`Plan::check`] makes steps of it
//! - [`plan_node`], [`board`], [`fleet`]: the same for the GPUs of a node as a driver reports them
//! - [`parted`]: the vendor's configuration file
//! - [`manager`]: the labels by which a node is told its configuration
//! - [`draw_text`], [`draw_svg`]: a GPU to look at

mod board;
mod catalogue;
mod compute;
mod defragment;
mod draw;
mod error;
mod fleet;
mod geometry;
mod live;
mod loss;
pub mod manager;
mod online;
pub mod parted;
mod placement;
mod plan;
mod profile;

pub use self::{
    board::{Board, BoardSpec, ComputeSpec, Engines, ProfileSpec},
    catalogue::{Catalogue, Entry},
    compute::{Compute, Part},
    defragment::{Defragmentation, Move, defragment, free},
    draw::{draw_svg, draw_text},
    error::{BoardError, FleetError, GeometryError, OnlineError, PlanError, Shortage, StaleError, StaleReason},
    fleet::{Demand, Fleet, GpuState, Held, Mode},
    geometry::{Geometry, Instance},
    live::{NodePlan, Reason, Refused, board, fleet, plan_node},
    loss::loss,
    online::{BestFit, Buddy, Candidate, FirstFit, Gradient, Online, Policy, Prospect, Score, States},
    placement::Placement,
    plan::{Change, CheckedPlan, ComputeChange, Cost, Plan, Step, Wanted, plan, reshape},
    profile::{ParseProfileError, Profile},
};
