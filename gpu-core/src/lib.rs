//! The GPUs of one node, as a plain value.
//!
//! [`Inventory`] is everything the other `gpu-*` crates need to know about a node. It holds no handles and does no I/O, so
//! it can be read through NVML, loaded from JSON, or written by hand.
//!
//! # Example
//!
//! ```
//! let inventory: gpu_core::Inventory = serde_json::from_str(r#"{ "gpus": [] }"#)?;
//! assert!(inventory.gpus.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where things are
//! - [`Inventory`], [`Gpu`], [`Driver`]: the value itself
//! - [`Problem`]: what could not be read while the rest could
//! - [`GpuUuid`], [`PciAddress`]: identifiers, checked when parsed
#![cfg_attr(feature = "nvml", doc = "- [`nvml`]: reading a node, and its health events")]
//!
//! # Features
//! Name | Adds | Default
//! ---|---|---
//! `nvml` | reading a node through `libnvidia-ml.so.1` | yes
//!
//! # What this crate does not do
//! It knows nothing of Kubernetes and runs no async runtime.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod driver;
#[cfg(feature = "nvml")]
mod error;
mod gpu;
mod inventory;
#[cfg(feature = "nvml")]
pub mod nvml;
mod pci;
mod problem;
mod product;
mod uuid;

#[cfg(feature = "nvml")]
pub use crate::error::{Error, Result};
pub use crate::{
    driver::{CudaVersion, Driver, DriverVersion, ParseVersionError},
    gpu::{Ecc, Gpu, Memory, Mig, PcieLink, PowerLimit},
    inventory::Inventory,
    pci::{ParsePciAddressError, ParsePciIdError, Pci, PciAddress, PciId},
    problem::{Problem, ProblemKind},
    product::{Architecture, Brand, ComputeCapability, ComputeMode},
    uuid::{GpuUuid, ParseGpuUuidError},
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")] // the README's code is compiled and run
struct Readme;
