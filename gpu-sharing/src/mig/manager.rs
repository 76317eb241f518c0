//! The labels by which a node is told its MIG configuration, and by which programs that use its GPUs are asked to wait.
//!
//! Values in, values out: the labels and annotations of a node come in, changes to them go out. Writing them is the caller's.
//!
//! ```
//! use std::collections::BTreeMap;
//! use gpu_sharing::mig::manager::{Lease, NodeMeta, Outcome, State, names};
//!
//! let mut node = NodeMeta::default();
//! node.labels.insert(names::CONFIG.into(), "all-1g.10gb".into());
//! node.labels.insert("nvidia.com/gpu.deploy.device-plugin".into(), "true".into());
//!
//! // Who uses GPUs is asked to wait, and it is noted how things were.
//! let change = Lease::take(&node, "mig-manager-x1", 1_700_000_300).pause(&node, "all-1g.10gb");
//! node.apply(&change);
//! assert_eq!(node.labels["nvidia.com/gpu.deploy.device-plugin"], "paused-for-mig-change");
//!
//! // Whatever happens then, things are as before.
//! let outcome = Outcome { state: State::Failed, value: "all-1g.10gb", reason: Some("GPU 0: …") };
//! node.apply(&outcome.end(&node, &[]));
//! assert_eq!(node.labels["nvidia.com/gpu.deploy.device-plugin"], "true");
//! assert_eq!(node.labels[names::STATE], "failed");
//! ```
//!
//! # Where things are
//! - [`NodeMeta`], [`Change`]: what a node says, and what to write
//! - [`Lease`]: who has asked others to wait, until when, and how things were before
//! - [`Outcome`], [`State`]: what is reported, and of which value
//! - [`names`]: the keys

mod lease;
pub mod names;
mod node;
mod state;

pub use self::{
    lease::Lease,
    node::{Change, NodeMeta},
    state::{BackOff, Outcome, State},
};
