//! A simulated NVIDIA node: an NVML library with the real C ABI, and the files that the driver leaves.
//!
//! Programs load the library as they load the driver's, so the code that runs on it is the code that runs on
//! hardware, vendor programs included. The node is a folder; what it is made of is in `node.yaml`, what happens to it
//! in `state/`, and every process that uses the node sees a change at once.
//!
//! # Example
//!
//! ```
//! use gpu_sim::{Node, NodeSpec};
//!
//! # let folder = tempfile::tempdir()?;
//! let node = Node::create(&NodeSpec::new("h100").gpus(4).seed(7), folder.path())?;
//! assert_eq!(node.gpus().len(), 4);
//!
//! // `node.library()` is what a program loads as libnvidia-ml.so.1, `node.root()` is its driver root and host root.
//! node.inject_xid(0, 79)?; // every NVML event set that waits for Xids on GPU 0 now gets one
//! node.lose(3)?; // from now on GPU 3 answers "GPU is lost"
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where things are
//! - [`profiles`], [`boards`]: what can be simulated
//! - [`NodeSpec`], [`Node`]: making a node and changing it
//! - [`NodeFile`]: what `node.yaml` holds
//! - [`Call`]: an NVML call that somebody made, out of a log that is off until asked for
//! - [`library`]: where this build's library is
//! - [`Error`]: why something failed
//!
//! # Features
//! Name | Adds | Default
//! ---|---|---
//! `cli` | `cli::run`, the command `gpu-sim` | yes
//! `programs` | `programs::run`, the driver's programs: `nvidia-smi` and others | yes
//!
//! # What this crate does not do
//! It starts no thread, computes nothing on a GPU, and knows nothing of Kubernetes or of its sister crates.

mod board;
mod build_id;
#[cfg(feature = "cli")]
pub mod cli;
mod data;
mod driver;
mod elf;
mod error;
#[cfg(any(test, feature = "__fuzz"))]
#[doc(hidden)]
pub mod fuzz;
mod library;
mod mig;
mod node;
mod node_file;
#[expect(unsafe_code, reason = "exports NVML's C ABI")]
mod nvml;
mod pci;
mod profile;
#[cfg(feature = "programs")]
pub mod programs;
mod seed;
#[cfg(feature = "programs")]
mod smi;
mod spec;
mod state;
mod tree;

pub use crate::{
    board::{Board, Clock, Clocks, Ecc, Memory, PciIds, Power, Temperature, boards},
    build_id::BUILD_ID,
    driver::Driver,
    error::{Error, Result},
    library::library,
    mig::{MediaEngines, MigProfile, MigTable},
    node::{Load, MigInstance, Node, Recovery, Service},
    node_file::{Fabric, GpuEntry, NodeFile, NvLink},
    pci::{ParsePciAddressError, PciAddress},
    profile::{Profile, Slot, profiles},
    spec::NodeSpec,
    state::Call,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")] // the README's code is compiled and run
struct Readme;
