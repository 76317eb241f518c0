//! A Kubernetes device plugin for NVIDIA GPUs, and a server for device plugins of any kind.
//!
//! [`serve`] offers any [`Resource`] to the kubelet and stays registered through the kubelet's restarts.
#![cfg_attr(
    feature = "gpu",
    doc = "[`run`] does so for the GPUs of this node: it reads them, writes their CDI file, and watches their health."
)]
//!
//! # Where things are
//! - [`serve`], [`Sockets`]: from a resource to a registered plugin
//! - [`Resource`], [`Device`], [`ResourceName`]: what a plugin offers
#![cfg_attr(
    feature = "gpu",
    doc = "- [`run`], [`Node`], [`NodeConfig`]: from a node to its GPUs, served\n\
           - [`GpuResource`], [`HealthPolicy`]: GPUs as a resource, and which events make one unhealthy"
)]
//! - [`names`]: resource names, environment variables, CDI kinds
//!
//! # Features
//! Name | Adds | Default
//! ---|---|---
//! `gpu` | the GPUs of a node as a resource; needs NVML and CDI | yes
//!
//! # What this crate does not do
//! It knows nothing of the operator and talks to no API server.
//!
//! # Foreign types
//! `gpu_cdi`, `gpu_core` (both with `gpu`) and [`gpu_kubelet`] show in the public API and are re-exported.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "gpu")]
pub use gpu_cdi;
#[cfg(feature = "gpu")]
pub use gpu_core;
pub use gpu_kubelet;

pub mod names;

mod error;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(feature = "gpu")]
mod health;
#[cfg(feature = "gpu")]
mod node;
mod resource;
mod resource_name;
#[cfg(feature = "gpu")]
mod run;
mod serve;
mod server;
mod socket;

pub use crate::{
    error::{Error, Result},
    resource::{Device, Resource},
    resource_name::{ParseResourceNameError, ResourceName},
    serve::{Sockets, serve},
};
#[cfg(feature = "gpu")]
pub use crate::{
    gpu::{DeviceIdStrategy, DeviceListStrategy, GpuResource},
    health::HealthPolicy,
    node::{Node, NodeConfig},
    run::run,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")] // the README's code is compiled and run
struct Readme;
