//! The programs that people deploy, one module each.
//!
//! A program parses its arguments, calls the library crates and turns what they return into one message and an exit code.
//! `src/bin/<name>.rs` only calls the module of that name.

#![forbid(unsafe_code)]

#[cfg(any(
    feature = "device-plugin",
    feature = "feature-discovery",
    feature = "gpuctl",
    feature = "quickstart",
    feature = "toolkit"
))]
mod program;

#[cfg(any(feature = "feature-discovery", feature = "gpuctl"))]
mod config_file;
#[cfg(feature = "container-runtime")]
pub mod container_runtime;
#[cfg(any(feature = "gpuctl", feature = "toolkit"))]
mod device_nodes;
#[cfg(feature = "device-plugin")]
pub mod device_plugin;
#[cfg(any(
    feature = "device-plugin",
    feature = "gpuctl",
    feature = "quickstart",
    feature = "toolkit"
))]
mod driver_files;
#[cfg(any(feature = "gpuctl", feature = "toolkit"))]
mod engine;
#[cfg(feature = "feature-discovery")]
pub mod feature_discovery;
#[cfg(feature = "gpuctl")]
pub mod gpuctl;
#[cfg(feature = "gpuctl")]
mod hardware;
#[cfg(any(
    feature = "device-plugin",
    feature = "feature-discovery",
    feature = "quickstart",
    feature = "toolkit"
))]
mod logging;
pub mod names;
#[cfg(feature = "quickstart")]
pub mod quickstart;
#[cfg(feature = "stack")]
pub mod stack;
#[cfg(any(feature = "device-plugin", feature = "feature-discovery"))]
mod stop;
#[cfg(feature = "toolkit")]
pub mod toolkit;
#[cfg(any(feature = "container-runtime", feature = "gpuctl", feature = "toolkit"))]
mod toolkit_config;
#[cfg(any(
    feature = "device-plugin",
    feature = "feature-discovery",
    feature = "gpuctl",
    feature = "toolkit"
))]
mod vendor;
