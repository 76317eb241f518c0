//! The vendor's file of MIG configurations, version 1, and what it asks of the GPUs of one node.
//!
//! Text and an [`Inventory`](gpu_core::Inventory) come in; what each GPU is to be, other files and plans go out.
//!
//! # Example
//!
//! ```
//! use gpu_sharing::mig::parted::Configs;
//!
//! let configs = Configs::parse("
//! version: v1
//! mig-configs:
//!   halves:
//!   - devices: all
//!     mig-enabled: true
//!     mig-devices: { 3g.40gb: 2 }
//! ")?;
//! let halves = configs.named(Some("halves"))?;
//! let node: gpu_core::Inventory = serde_json::from_str(r#"{ "gpus": [] }"#)?;
//! assert_eq!(halves.select(&node).unwrap_err().to_string(), "configuration `halves`: this node has no GPU that can do MIG");
//!
//! // What the vendor's programs pass over in silence has a line and a reason.
//! let error = Configs::parse("version: v1\nmig-configs:\n  x:\n  - devices: 7\n    mig-enabled: false").unwrap_err();
//! assert_eq!(error.to_string(), "`mig-configs.x[0].devices` in line 4: expected `all` or a list of indices, as in `[7]`");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where things are
//! - [`Configs`], [`Config`], [`Spec`]: the file; [`Configs::to_yaml`] and [`Configs::to_json`] write it as the vendor does
//! - [`Config::select`]: what it asks of each GPU; [`Selection::differs`]: whether that is so already
//! - [`generate`], [`export`]: the file that fits a node, and the one that describes it
//! - [`Checkpoint`]: a node's layout with every place, in the vendor's JSON
//! - [`Hooks`]: the commands of the hooks file

mod checkpoint;
mod export;
mod file;
mod generate;
mod hooks;
mod note;
mod parse;
mod select;
mod write;

pub use self::{
    checkpoint::{Checkpoint, CheckpointError},
    export::export,
    file::{Config, Configs, DeviceFilter, Devices, NoSuchConfig, ParseDeviceFilterError, Spec},
    generate::{NoProfiles, generate},
    hooks::{Command, Hook, Hooks},
    note::Note,
    parse::Error,
    select::{Difference, SelectError, Selection},
    write::Form,
};
