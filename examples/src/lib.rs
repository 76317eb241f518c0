//! The programs that people deploy, one module each.
//!
//! A program parses its arguments, calls the library crates and turns what they return into one message and an exit code.
//! `src/bin/<name>.rs` only calls the module of that name.

#![forbid(unsafe_code)]

#[cfg(any(
    feature = "device-plugin",
    feature = "feature-discovery",
    feature = "gpuctl",
    feature = "quickstart"
))]
mod program;

#[cfg(feature = "device-plugin")]
pub mod device_plugin;
#[cfg(feature = "feature-discovery")]
pub mod feature_discovery;
#[cfg(feature = "gpuctl")]
pub mod gpuctl;
#[cfg(feature = "gpuctl")]
mod hardware;
#[cfg(any(feature = "device-plugin", feature = "feature-discovery"))]
mod logging;
#[cfg(feature = "quickstart")]
pub mod quickstart;
#[cfg(feature = "stack")]
pub mod stack;
#[cfg(any(feature = "device-plugin", feature = "feature-discovery"))]
mod vendor;
