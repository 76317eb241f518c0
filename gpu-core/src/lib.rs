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

mod change;
mod driver;
#[cfg(feature = "nvml")]
mod error;
mod gpu;
mod inventory;
mod mig;
#[cfg(feature = "nvml")]
pub mod nvml;
mod pci;
mod problem;
mod product;
#[cfg(feature = "nvml")]
mod sysfs;
mod topology;
mod uuid;
mod vgpu;

#[cfg(feature = "nvml")]
pub use crate::error::{Error, Result};
pub use crate::{
    change::Change,
    driver::{CudaVersion, Driver, DriverVersion, ParseVersionError},
    gpu::{Ecc, Gpu, Memory, PcieLink, PowerLimit, RemappedRows},
    inventory::Inventory,
    mig::{
        ComputeInstance, Engines, GpuInstance, GpuInstanceProfile, Mig, MigAttributes, MigDevice, MigProfile,
        ParseMigProfileError, Placement,
    },
    pci::{ParsePciAddressError, ParsePciIdError, Pci, PciAddress, PciId},
    problem::{Problem, ProblemKind},
    product::{AddressingMode, Architecture, Brand, ComputeCapability, ComputeMode, VirtualizationMode},
    topology::{CommonAncestor, Fabric, FabricState, GpuPair, NvLink, NvLinkRemote, P2pStatus},
    uuid::{GpuUuid, MigUuid, ParseGpuUuidError, ParseMigUuidError},
    vgpu::{ParseVgpuError, VgpuHost},
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")] // the README's code is compiled and run
struct Readme;
