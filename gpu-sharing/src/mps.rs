//! GPUs shared through the Multi-Process Service (MPS): containers run on one GPU at once, each with a share of its memory and
//! of its threads.
//!
//! [`plan`] says what a node's MPS daemon has to do, and what a container gets to reach it, as a function of the GPUs and of
//! the configuration; device plugin and daemon come to the same answer because they ask the same function, and
//! [`Agreement`] tells one what the other has done.
//!
//! # Example
//!
//! ```
//! use gpu_sharing::{config::{Config, ConfigFile, Flags, Options, Reading}, gpu_core::Inventory, mps};
//!
//! let inventory: Inventory = serde_json::from_str(r#"{ "gpus": [{
//!     "index": 0, "minor": 0, "uuid": "GPU-01000100-0000-0000-0000-000000000000", "name": "NVIDIA A100-SXM4-40GB",
//!     "pci": { "address": "0000:1a:00.0", "id": "10de:20b0" },
//!     "memory": { "total_bytes": 42949672960 }, "compute_capability": "8.0"
//! }] }"#)?;
//! let (file, _) = ConfigFile::parse("sharing: { mps: { resources: [{ name: gpu, replicas: 4 }] } }", Reading::Strict)?;
//! let (config, _) = Config::resolve(file, Flags::default(), Options::default());
//!
//! let plan = mps::plan(&inventory, &config)?;
//! let gpus = &plan.resources[0];
//! assert_eq!(gpus.limit_commands(), [
//!     "set_default_device_pinned_mem_limit 0 10240M",
//!     "set_default_active_thread_percentage 25",
//! ]);
//! let client = gpus.client(["GPU-01000100-0000-0000-0000-000000000000"], "/run/nvidia/mps").unwrap();
//! assert_eq!(client.environment["CUDA_MPS_PIPE_DIRECTORY"], "/mps/nvidia.com/gpu/pipe");
//! assert_eq!(client.mounts[0].host_path, "/run/nvidia/mps/nvidia.com/gpu/pipe");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
#![cfg_attr(feature = "mps-daemon", doc = "[`daemon`] carries it out.\n")]
//! # Where things are
//! - [`plan`], [`Plan`], [`SharedResource`], [`SharedGpu`]: what is shared, and the limits
//! - [`Client`], [`Mount`]: what a container gets
//! - [`Agreement`]: what the daemon tells the device plugin
//! - [`Root`], [`names`]: paths and names

mod agreement;
mod client;
#[cfg(feature = "mps-daemon")]
#[expect(clippy::disallowed_methods, reason = "this module is the one that acts")]
pub mod daemon;
mod error;
#[cfg(feature = "files")]
#[expect(clippy::disallowed_methods, reason = "this module is the one that reads")]
mod files;
mod limits;
pub mod names;
mod plan;
mod root;

pub use self::{
    agreement::{Agreement, ParseAgreementError},
    client::{Client, Mount},
    error::{Error, Remark, Result},
    limits::{MaxClients, SharedGpu},
    plan::{Plan, SharedResource, plan},
    root::Root,
};

#[cfg(feature = "files")]
pub use self::files::{ReadError, agreement};

#[cfg(test)]
mod tests;
