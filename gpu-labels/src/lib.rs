//! The labels that say on a Kubernetes node which GPUs it has: `nvidia.com/gpu.product` and its like.
//!
//! They are a pure function of three values: the [`Inventory`](gpu_core::Inventory) of the GPUs, the [`Node`] around them,
//! and the [`Config`](gpu_sharing::config::Config) of the device plugin. Every key and value is valid in Kubernetes by its
//! type, and the same node gives the same labels, always.
//!
//! # Example
//!
//! ```
//! use gpu_labels::{Node, Options, labels};
//! use gpu_sharing::config::{Config, ConfigFile, Flags};
//!
//! let inventory: gpu_core::Inventory = serde_json::from_str(r#"{
//!     "driver": { "version": "580.159.04", "cuda_version": "13.0" },
//!     "gpus": [{
//!         "index": 0, "minor": 0, "uuid": "GPU-01000100-0000-0000-0000-000000000000", "name": "NVIDIA H200",
//!         "pci": { "address": "0000:1a:00.0", "id": "10de:2335" },
//!         "memory": { "total_bytes": 150754820096 }, "compute_capability": "9.0"
//!     }]
//! }"#)?;
//! let (config, _) = Config::resolve(ConfigFile::default(), Flags::default(), Default::default());
//! let (labels, remarks) = labels(&inventory, &Node::default(), &config, Options::default())?;
//! assert_eq!(labels.get("nvidia.com/gpu.product").unwrap().as_str(), "NVIDIA-H200");
//! assert_eq!(labels.get("nvidia.com/gpu.family").unwrap().as_str(), "hopper");
//! assert!(remarks.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where things are
//! - [`labels`], [`pci_labels`]: the derivation; [`names`]: every key
//! - [`Labels`], [`LabelKey`], [`LabelValue`]: the result; how a value that is too long is shortened
//! - [`Node`], [`PciFunction`]: what is not in the inventory
//! - [`Remark`]: what could not be labelled, as values
//!
//! # Features
//! Name | Adds | Default
//! ---|---|---
//! `controller` | labels through the Kubernetes API: module `cluster` | no
//! `files` | reading a [`Node`] of `/sys`, writing labels to a feature file | no
//! `nvml` | the feature of `gpu_core`, which reads the inventory through the driver | no
//!
//! # What this crate does not do
//! It reads no driver (that is `gpu_core`'s), and the labels get nowhere by themselves.

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "controller")]
pub mod cluster;
mod derive;
mod error;
#[cfg(feature = "files")]
#[expect(clippy::disallowed_methods, reason = "this module is the one that writes")]
mod file;
mod key;
mod labels;
pub mod names;
mod node;
mod value;

pub use gpu_core;
pub use gpu_sharing;
#[cfg(feature = "controller")]
pub use kube;

#[cfg(feature = "files")]
pub use crate::file::FeatureFile;

pub use crate::{
    derive::{Options, labels, pci_labels},
    error::{Error, Remark},
    key::{LabelKey, ParseLabelKeyError},
    labels::{Labels, ParseLabelsError},
    node::{Node, PciFunction, Vgpu},
    value::{LabelValue, ParseLabelValueError},
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")] // the README's code is compiled and run
struct Readme;
