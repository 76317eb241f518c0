//! Cutting GPUs into instances: what a board offers, how instances can lie, and how to get there with least harm.
//!
//! - [`Profile`], [`Placement`], [`Instance`], [`Geometry`]: names, places and sets of instances that fit together
//! - [`Board`], [`Catalogue`]: what a model of GPU offers
//! - [`Fleet`], [`Demand`]: GPUs as they are, and what is wanted of them
//! - [`plan()`], [`reshape`]: what to change; [`Plan::check`] makes steps of it

mod board;
mod catalogue;
mod error;
mod fleet;
mod geometry;
mod loss;
mod placement;
mod plan;
mod profile;

pub use self::{
    board::{Board, BoardSpec, ComputeSpec, Engines, ProfileSpec},
    catalogue::{Catalogue, Entry},
    error::{BoardError, FleetError, GeometryError, PlanError, Shortage, StaleError, StaleReason},
    fleet::{Demand, Fleet, GpuState, Held, Mode},
    geometry::{Geometry, Instance},
    loss::loss,
    placement::Placement,
    plan::{Change, CheckedPlan, Cost, Plan, Step, Wanted, plan, reshape},
    profile::{ParseProfileError, Profile},
};
