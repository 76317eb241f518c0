//! A Kubernetes device plugin for NVIDIA GPUs, and a server for device plugins of any kind.
//!
//! [`serve`] offers any [`Resource`] to the kubelet and stays registered through the kubelet's restarts. [`run`] does so for the
//! GPUs of this node: it reads them, writes their CDI file, and watches their health.
//!
//! # Where things are
//! - [`serve`], [`Sockets`]: from a resource to a registered plugin
//! - [`Resource`], [`Device`], [`ResourceName`]: what a plugin offers
//! - [`run`], [`Node`], [`NodeConfig`]: from a node to its GPUs, served
//! - [`GpuResource`], [`HealthPolicy`]: GPUs as a resource, and which events make one unhealthy
//! - [`names`]: resource names, environment variables, CDI kinds
//!
//! # What this crate does not do
//! It knows nothing of the operator and talks to no API server.
//!
//! # Foreign types
//! [`gpu_cdi`], [`gpu_core`] and [`gpu_kubelet`] show in the public API and are re-exported.

#![forbid(unsafe_code)]

pub use gpu_cdi;
pub use gpu_core;
pub use gpu_kubelet;

pub mod names;

mod error;
mod gpu;
mod health;
mod node;
mod resource;
mod resource_name;
mod serve;
mod server;
mod socket;

pub use crate::{
    error::{Error, Result},
    gpu::{DeviceIdStrategy, DeviceListStrategy, GpuResource},
    health::HealthPolicy,
    node::{Node, NodeConfig, run},
    resource::{Device, Resource},
    resource_name::{ParseResourceNameError, ResourceName},
    serve::{Sockets, serve},
};
