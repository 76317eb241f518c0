//! Sharing GPUs: how to cut them into MIG instances, and how to hand one out several times.
//!
//! Values in, values out: a [`Board`](mig::Board) from the catalogue or from a driver's own list, the state of a fleet, and
//! what is wanted; a checked list of steps or a placement comes back. Without features nothing is read, written or timed here, so the
//! crate can be embedded in a scheduler, an autoscaler or a node agent alike.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//! use gpu_sharing::mig::{Catalogue, Demand, Fleet, GpuState, Mode, plan};
//!
//! let board = Arc::clone(Catalogue::builtin().board("H200-141GB").unwrap());
//! let fleet = Fleet::new([GpuState { name: "gpu-0".into(), board, mode: Mode::Enabled, instances: Vec::new() }])?;
//! let demand: Demand = [("3g.71gb".parse()?, 2)].into_iter().collect();
//! for step in plan(&fleet, &demand)?.check(&fleet)?.steps() {
//!     println!("{step}"); // create 3g.71gb@0 on gpu-0, create 3g.71gb@4 on gpu-0
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where things are
//! - [`config`]: the vendor's configuration file, as written and as resolved
//! - [`mig`]: profiles, boards, geometries; plans, online placement, defragmentation, drawings
//! - [`mps`]: GPUs shared by several containers at once: limits, and what a container gets
//! - [`time_slicing`]: ids of replicas and which to hand out together
//!
//! # Features
//! Name | Adds | Default
//! ---|---|---
//! `files` | reading what an MPS daemon says on this node | no
//! `mps-daemon` | running the MPS daemons of a node; needs tokio | no
//!
//! # What this crate does not do
//! It calls no driver and knows nothing of Kubernetes. Carrying out a step of a MIG plan is somebody else's job.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod config;
pub mod mig;
pub mod mps;
pub mod time_slicing;

pub use gpu_core;

#[cfg(doctest)]
#[doc = include_str!("../README.md")] // the README's code is compiled and run
struct Readme;
