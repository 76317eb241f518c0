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
//! - [`Inventory`], [`Gpu`], [`Driver`]: the value itself; [`Mig`]: what a GPU can be divided into and is
//! - [`Problem`]: what could not be read while the rest could
//! - [`Change`]: what [`Inventory::diff`] finds between two readings
//! - [`Plan`], [`Step`]: MIG changes, checked on paper before a GPU is touched
//! - [`Usage`]: which processes and containers use which GPU
//! - [`PciInventory`]: NVIDIA's devices on the PCI bus, without NVML and without a driver
//! - [`GpuUuid`], [`MigUuid`], [`PciAddress`], [`MigProfile`]: identifiers, checked when parsed
#![cfg_attr(
    feature = "nvml",
    doc = "- [`nvml`]: reading a node, watching it, and applying a [`CheckedPlan`]"
)]
#![cfg_attr(feature = "kmsg", doc = "- [`kmsg`]: Xids out of the kernel's log")]
//! - [`root`]: a folder out of which no path leads, for what others have made
#![cfg_attr(feature = "ownership", doc = "- [`ownership`]: who may change which GPU")]
//!
//! # Features
//! Name | Adds | Default
//! ---|---|---
//! `nvml` | reading, watching and dividing through `libnvidia-ml.so.1` | yes
//! `ownership` | the file by which the programs of a node agree who may change which GPU | yes
//! `kmsg` | Xids out of the kernel's log | no
//! `pci-names` | names of PCI devices, from a database that is compiled in (1 MB) | no
//! `schemars` | JSON Schema of the values (`schema/` has those of [`Inventory`], [`Change`], [`Plan`], [`Usage`], [`PciInventory`] and the file of owners) | no
//!
//! # What this crate does not do
//! It knows nothing of Kubernetes and runs no async runtime.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod change;
mod driver;
#[cfg(feature = "nvml")]
mod error;
mod file;
mod gpu;
mod inventory;
#[cfg(feature = "kmsg")]
pub mod kmsg;
mod mig;
#[cfg(feature = "nvml")]
pub mod nvml;
#[cfg(feature = "ownership")]
pub mod ownership;
mod pci;
mod pci_device;
mod problem;
mod product;
mod recovery;
pub mod root;
#[cfg(all(test, feature = "schemars"))]
mod schema;
mod sysfs;
mod topology;
mod usage;
mod uuid;
mod vgpu;

#[cfg(feature = "nvml")]
pub use crate::error::{Error, Result};
pub use crate::{
    change::Change,
    driver::{CudaVersion, Driver, DriverVersion, ParseVersionError},
    file::{FileError, read_bytes, read_start},
    gpu::{Ecc, Gpu, Memory, PcieLink, PowerLimit, RemappedRows},
    inventory::Inventory,
    mig::{
        CheckedPlan, ComputeInstance, Engines, GpuInstance, GpuInstanceProfile, Impossible, Mig, MigAttributes,
        MigDevice, MigProfile, ParseMigProfileError, Placement, Plan, PlanError, Step,
    },
    pci::{ParsePciAddressError, ParsePciIdError, Pci, PciAddress, PciId},
    pci_device::{PciDevice, PciInventory},
    problem::{Problem, ProblemKind},
    product::{AddressingMode, Architecture, Brand, ComputeCapability, ComputeMode, VirtualizationMode},
    recovery::RecoveryAction,
    topology::{CommonAncestor, Fabric, FabricState, GpuPair, NvLink, NvLinkRemote, P2pStatus},
    usage::{Container, GpuProcess, GpuUsage, ProcessKind, Usage},
    uuid::{GpuUuid, MigUuid, ParseGpuUuidError, ParseMigUuidError},
    vgpu::{ParseVgpuError, VgpuHost},
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")] // the README's code is compiled and run
struct Readme;
