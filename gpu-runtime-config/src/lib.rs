//! Edits of containerd, CRI-O and Docker configuration that keep what they do not own.
//!
//! Text in, text out: the caller reads the files of a node, a function of this crate works out what they must hold, and
//! the [`Plan`] says which of them change. It knows no GPU and, without the feature `apply`, touches no file.
//!
//! # Promises
//! - Every byte that need not change stays: comments, order, blank lines, line endings, quotes.
//! - Doing it twice changes nothing, and a plan without changes is empty: nothing to write, nothing to restart.
//! - [`revert`] gives every byte back where nobody else has edited since, and takes only its own keys back where somebody has.
//! - What was interrupted, by a kill or a full disk, is finished or taken back by the next run (feature `apply`).
//! - Every edit is parsed again and compared with what was meant, and the files' merged meaning is worked out as the engine
//!   does it. What would not take effect, or would stop the engine, is an [`Error`] with file, line and column.
//!
//! # Example
//! ```
//! use gpu_runtime_config::{Settings, Snapshot, containerd, revert};
//!
//! let files = containerd::Files {
//!     main: Snapshot::new("/etc/containerd/config.toml", "version = 2 # ours\n"),
//!     drop_in: Snapshot::absent("/etc/containerd/conf.d/99-nvidia.toml"),
//!     imported: vec![],
//!     other: vec![],
//! };
//! let settings = Settings::vendor("/usr/local/nvidia/toolkit", "nvidia", false);
//! let plan = containerd::configure(&files, Some("2.3.2".parse()?), Default::default(), &settings, None)?;
//! print!("{}", plan.diff());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where things are
//! - [`containerd`], [`crio`], [`docker`]: the engines
//! - [`Settings`]: what is asked for; [`Preset`]: where distributions keep their files
//! - [`Plan`], [`Notice`], [`Receipt`], [`revert`]: what would change, and how it is taken back
//! - [`toolkit`]: the NVIDIA container toolkit's own `config.toml`
//! - `apply` (feature): lock, read, write, restart, check, roll back
//!
//! # Features
//! Name | Adds | Default
//! ---|---|---
//! `apply` | carrying plans out on a node (Linux) | no
//!
//! # What this crate does not do
//! It never runs `containerd config dump`, whose version is the daemon's and not the file's, and it sets up no OCI hooks.
#![forbid(unsafe_code)]

#[cfg(feature = "apply")]
pub mod apply;
pub mod containerd;
pub mod crio;
pub mod docker;
mod drop_in_path;
mod edit;
mod error;
mod json_text;
mod plan;
mod preset;
mod receipt;
mod runtime;
mod splice;
mod toml_text;
pub mod toolkit;
mod value;

pub use crate::{
    error::{Error, Position, Result},
    plan::{FileChange, Notice, Plan, Snapshot},
    preset::{Lifetime, Preset, Reload, UnknownPreset},
    receipt::{Receipt, revert},
    runtime::{Cdi, Runtime, Settings},
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")] // the README's code is compiled and run
struct Readme;
