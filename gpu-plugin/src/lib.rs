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
    doc = "- [`run`], [`NodeConfig`], [`Node`]: from a node to its GPUs, served; [`Status`]\n\
           - [`offer`], [`Offer`]: which resources a node has, whether NVML tells its GPUs apart or not; values in, values out\n\
           - [`Answers`]: what containers are told; [`Affinity`], [`choose`]: which GPUs go together\n\
           - [`HealthStates`], [`HealthPolicy`], [`examine`]: which GPUs may be handed out\n\
           - [`GpuResource`]: GPUs as a resource"
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
//! `gpu_cdi`, `gpu_core` (both with `gpu`), [`gpu_kubelet`] and [`gpu_sharing`] show in the public API and are re-exported.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "gpu")]
pub use gpu_cdi;
#[cfg(feature = "gpu")]
pub use gpu_core;
pub use gpu_kubelet;
pub use gpu_sharing;
pub use gpu_sharing::config::ResourceName;

pub mod names;

#[cfg(feature = "gpu")]
mod affinity;
#[cfg(feature = "gpu")]
mod allocate;
mod directory_watch;
mod error;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(feature = "gpu")]
mod health;
mod identity;
mod known;
#[cfg(feature = "gpu")]
mod mps;
#[cfg(feature = "gpu")]
mod node;
#[cfg(feature = "gpu")]
mod offer;
#[cfg(feature = "gpu")]
mod prefer;
mod resource;
#[cfg(feature = "gpu")]
mod run;
mod serve;
mod server;
#[cfg(feature = "gpu")]
mod status;

#[cfg(feature = "gpu")]
pub use crate::{
    affinity::Affinity,
    allocate::{Answers, NodePaths},
    gpu::{GpuResource, How},
    health::{Finding, Health, HealthChange, HealthPolicy, HealthStates, ParseXidClassError, Part, XidClass, examine},
    mps::Mps,
    node::{Node, NodeConfig},
    offer::{
        GpuChoice, GpuRef, Instance, Offer, OfferError, OfferedDevice, ParseGpuRefError, Remark, ResourceSet, offer,
    },
    prefer::choose,
    run::run,
    status::{Ailment, ResourceStatus, Status},
};
pub use crate::{
    error::{Error, Result},
    resource::{Device, Resource},
    serve::{Sockets, serve, serve_observed},
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")] // the README's code is compiled and run
struct Readme;
