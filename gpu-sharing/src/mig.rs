//! Cutting GPUs into instances: what a board offers, how instances can lie, and how to get there with least harm.
//!
//! - [`Profile`], [`Placement`], [`Instance`], [`Geometry`]: names, places and sets of instances that fit together
//! - [`Board`], [`Catalogue`]: what a model of GPU offers

mod board;
mod catalogue;
mod error;
mod geometry;
mod placement;
mod profile;

pub use self::{
    board::{Board, BoardSpec, ComputeSpec, Engines, ProfileSpec},
    catalogue::{Catalogue, Entry},
    error::{BoardError, GeometryError},
    geometry::{Geometry, Instance},
    placement::Placement,
    profile::{ParseProfileError, Profile},
};
