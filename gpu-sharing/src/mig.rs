//! Cutting GPUs into instances: what a board offers, how instances can lie, and how to get there with least harm.
//!
//! - [`Profile`], [`Placement`], [`Instance`], [`Geometry`]: names, places and sets of instances that fit together
//! - [`Board`], [`Catalogue`]: what a model of GPU offers
//! - [`Fleet`], [`Demand`]: GPUs as they are, and what is wanted of them
//! - [`Online`], [`Policy`]: one request after the other
//! - [`plan()`], [`reshape`], [`defragment`]: what to change; [`Plan::check`] makes steps of it
//! - [`draw_text`], [`draw_svg`]: a GPU to look at

mod board;
mod catalogue;
mod defragment;
mod draw;
mod error;
mod fleet;
mod geometry;
mod loss;
mod online;
mod placement;
mod plan;
mod profile;

pub use self::{
    board::{Board, BoardSpec, ComputeSpec, Engines, ProfileSpec},
    catalogue::{Catalogue, Entry},
    defragment::{Defragmentation, Move, defragment, free},
    draw::{draw_svg, draw_text},
    error::{BoardError, FleetError, GeometryError, OnlineError, PlanError, Shortage, StaleError, StaleReason},
    fleet::{Demand, Fleet, GpuState, Held, Mode},
    geometry::{Geometry, Instance},
    loss::loss,
    online::{BestFit, Buddy, Candidate, FirstFit, Gradient, Online, Policy, Prospect, Score, States},
    placement::Placement,
    plan::{Change, CheckedPlan, Cost, Plan, Step, Wanted, plan, reshape},
    profile::{ParseProfileError, Profile},
};
