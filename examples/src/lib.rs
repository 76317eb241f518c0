//! The programs that people deploy, one module each.
//!
//! A program parses its arguments, calls the library crates and turns what they return into one message and an exit code.
//! `src/bin/<name>.rs` only calls the module of that name.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "stack"),
    allow(dead_code, reason = "what the programs share has parts that only some of them use")
)]

#[cfg(any(
    feature = "config-manager",
    feature = "device-plugin",
    feature = "feature-discovery",
    feature = "gpuctl",
    feature = "mig-manager",
    feature = "mps-daemon",
    feature = "quickstart",
    feature = "toolkit"
))]
mod program;

#[cfg(any(feature = "device-plugin", feature = "gpuctl"))]
mod cdi_feature;
#[cfg(any(feature = "feature-discovery", feature = "mps-daemon"))]
mod changes;
#[cfg(any(
    feature = "config-manager",
    feature = "feature-discovery",
    feature = "mig-manager",
    feature = "node-events"
))]
mod cluster;
#[cfg(any(
    feature = "config-manager",
    feature = "container-runtime",
    feature = "device-plugin",
    feature = "feature-discovery",
    feature = "gpuctl",
    feature = "mps-daemon",
    feature = "toolkit"
))]
mod config_file;
#[cfg(feature = "config-manager")]
pub mod config_manager;
#[cfg(feature = "container-runtime")]
pub mod container_runtime;
#[cfg(any(feature = "gpuctl", feature = "mig-manager", feature = "toolkit"))]
mod device_nodes;
#[cfg(feature = "device-plugin")]
pub mod device_plugin;
#[cfg(any(
    feature = "device-plugin",
    feature = "gpuctl",
    feature = "mig-manager",
    feature = "quickstart",
    feature = "toolkit"
))]
mod driver_files;
#[cfg(any(feature = "gpuctl", feature = "toolkit"))]
mod engine;
#[cfg(feature = "node-events")]
mod events;
#[cfg(any(
    feature = "config-manager",
    feature = "device-plugin",
    feature = "feature-discovery",
    feature = "mig-manager",
    feature = "mps-daemon",
    feature = "quickstart",
    feature = "toolkit"
))]
mod executor;
#[cfg(feature = "feature-discovery")]
pub mod feature_discovery;
#[cfg(feature = "gpuctl")]
pub mod gpuctl;
#[cfg(any(feature = "gpuctl", feature = "mig-manager"))]
mod hardware;
#[cfg(any(feature = "device-plugin", feature = "feature-discovery", feature = "mps-daemon"))]
mod health;
#[cfg(any(feature = "gpuctl", feature = "toolkit"))]
mod host_root;
#[cfg(any(feature = "device-plugin", feature = "feature-discovery", feature = "mps-daemon"))]
mod last_read;
#[cfg(any(
    feature = "config-manager",
    feature = "device-plugin",
    feature = "feature-discovery",
    feature = "mig-manager",
    feature = "mps-daemon",
    feature = "quickstart",
    feature = "toolkit"
))]
mod logging;
#[cfg(any(feature = "device-plugin", feature = "mps-daemon"))]
mod metrics;
#[cfg(any(feature = "gpuctl", feature = "mig-manager"))]
mod mig_apply;
#[cfg(feature = "mig-manager")]
pub mod mig_manager;
#[cfg(feature = "mps-daemon")]
pub mod mps_daemon;
pub mod names;
#[cfg(feature = "quickstart")]
pub mod quickstart;
#[cfg(any(feature = "device-plugin", feature = "feature-discovery", feature = "mps-daemon"))]
mod settings;
#[cfg(feature = "stack")]
pub mod stack;
#[cfg(any(
    feature = "config-manager",
    feature = "device-plugin",
    feature = "feature-discovery",
    feature = "mps-daemon",
    feature = "toolkit"
))]
mod stop;
#[cfg(feature = "toolkit")]
pub mod toolkit;
#[cfg(any(feature = "container-runtime", feature = "gpuctl", feature = "toolkit"))]
mod toolkit_config;
#[cfg(any(
    feature = "config-manager",
    feature = "device-plugin",
    feature = "feature-discovery",
    feature = "gpuctl",
    feature = "mig-manager",
    feature = "mps-daemon",
    feature = "quickstart",
    feature = "toolkit"
))]
mod vendor;
#[cfg(any(feature = "container-runtime", feature = "toolkit"))]
mod whole_file;
