//! What the end-to-end tests stand on: container images without a registry, and a handle on the test cluster.
//!
//! The cluster itself is started by `e2e/up`; the tests run inside its node's namespaces (`e2e/cluster exec`).
//!
//! # Where things are
//! - [`Layer`], [`Image`]: what is in an image, and its archive for `ctr images import`
//! - [`images`]: the images of the tests
//! - [`Cluster`]: `kubectl` with JSON answers
//! - [`GpuNode`]: simulated GPUs and the device plugin on its node
//! - [`plugin`]: the plugin's process and its configuration
//! - [`pods`]: pods that go when their test does; [`Checkpoint`]: what they hold
//! - [`wait`]: polling with a deadline and a message that says what was waited for

#![forbid(unsafe_code)]

mod checkpoint;
mod cluster;
mod gpu_node;
mod image;
pub mod images;
pub mod plugin;
pub mod pods;
pub mod wait;

pub use crate::{
    checkpoint::Checkpoint,
    cluster::{Cluster, Output},
    gpu_node::GpuNode,
    image::{Image, Layer},
};
