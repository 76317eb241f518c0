//! CDI specs for NVIDIA GPUs.
//!
//! The Container Device Interface describes in a file what a container needs that gets a device. This crate makes these
//! files for GPUs: [`DriverFiles::discover`] reads a driver root, and [`generate`] makes a [`Spec`] of it and of an
//! [`Inventory`](gpu_core::Inventory), with no I/O of its own. The model is of use for any other device as well.
//!
//! # Example
//!
//! ```
//! use gpu_cdi::{Format, Spec};
//!
//! let spec = Spec::from_text(
//!     r#"{"cdiVersion": "0.3.0", "kind": "example.com/nic", "devices": [
//!         {"name": "nic0", "containerEdits": {"deviceNodes": [{"path": "/dev/nic0"}]}}]}"#,
//!     Format::Json,
//! )?;
//! spec.validate()?;
//! assert_eq!(spec.required_version().as_str(), "0.3.0");
//! # Ok::<(), gpu_cdi::Error>(())
//! ```
//!
//! # Where things are
//! - [`Spec`], [`Device`], [`ContainerEdits`]: the model; [`Spec::new`] makes one for any device, [`Spec::write`] puts it in place atomically
//! - [`Kind`], [`DeviceName`], [`QualifiedName`], [`Version`]: names, checked when parsed
//! - [`DriverFiles`], [`DiscoverConfig`]: what a driver root holds
//! - [`Platform`]: whether its GPUs are NVML's, a Tegra's or Windows', and so which of the following describes them
//! - [`generate`], [`GenerateOptions`]: inventory and files in, spec out
//! - [`generate_management`], [`generate_companion`], [`generate_imex`]: specs of devices that are no single GPU
//! - [`generate_tegra`], [`generate_wsl`], [`generate_vfio`]: specs of GPUs that are not on a bus or not with the driver
//! - [`Cache`]: the specs of a node, with the rules by which a runtime chooses among them; [`annotation`]
//! - [`names`]: environment variables and paths that other programs know
//! - [`Error`]: why there is no spec; [`SkippedDevice`], [`FileProblem`]: what is missing from one that there is
//!
//! # Features
//! Name | Adds | Default
//! ---|---|---
//! `hook` | `gpu_cdi::hook`: the programs that a spec has the runtime call | no
//! `runtime` | `gpu_cdi::runtime`: edits of a container's `config.json`, for a wrapper around runc or crun | no
//!
//! # What this crate does not do
//! It knows nothing of Kubernetes, does not call NVML and runs no async runtime.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod annotations;
mod cache;
mod elf;
mod error;
mod files;
mod generate;
#[cfg(feature = "hook")]
#[cfg_attr(docsrs, doc(cfg(feature = "hook")))]
pub mod hook;
mod kind;
pub mod names;
mod pattern;
#[cfg(feature = "runtime")]
#[cfg_attr(docsrs, doc(cfg(feature = "runtime")))]
pub mod runtime;
mod spec;
mod version;

pub use crate::{
    annotations::{ANNOTATION_PREFIX, annotated_devices, annotation},
    cache::{Cache, CacheProblem, LiveCache},
    error::{Error, Result},
    files::{
        ConfigFile, DeviceFile, DeviceNumber, DeviceRule, DiscoverConfig, DriverFiles, FileProblem, FoundFile, Library,
        Platform, PlatformSigns, TegraConfig, TegraFiles, WslFiles,
    },
    generate::{
        Companion, DeviceId, GenerateOptions, Generated, GeneratedVfio, HookName, ImexChannel, NameStrategy,
        ORIN_COMPAT_DIR, ParseHookNameError, ParseImexChannelError, ParseNameStrategyError, SkipReason, SkippedDevice,
        SkippedMig, VfioProblem, generate, generate_companion, generate_imex, generate_management, generate_none,
        generate_tegra, generate_vfio, generate_wsl, split_by_coherence,
    },
    kind::{DeviceName, Kind, ParseNameError, QualifiedName},
    spec::{
        ContainerEdits, Device, DeviceNode, Format, Hook, HookStage, IntelRdt, InvalidSpec, Mount, NetDevice, PathSide,
        Spec,
    },
    version::{ParseVersionError, Version},
};
pub use gpu_core;

#[cfg(doctest)]
#[doc = include_str!("../README.md")] // the README's code is compiled and run
struct Readme;
