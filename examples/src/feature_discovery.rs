//! `gpu-feature-discovery`: labels this node with its GPUs, in the place of the vendor's program of that name.

use std::{ffi::OsString, process::ExitCode, time::Duration};

use self::arguments::FeatureDiscovery;
use crate::program;

mod arguments;
mod daemon;
mod hardware;
mod labeller;
mod settings;
mod target;

/// Runs `gpu-feature-discovery` with these arguments, the program's name first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: FeatureDiscovery = program::parse(arguments);
    program::run(|| {
        arguments.logging.start()?;
        let settings = arguments.settings()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let result = if settings.config.gfd.oneshot {
            runtime.block_on(daemon::run_once(&arguments, settings))
        } else {
            runtime.block_on(daemon::run(&arguments, settings))
        };
        // A driver call that hangs must not keep the process from ending.
        runtime.shutdown_timeout(Duration::from_millis(100));
        result
    })
}

#[cfg(test)]
mod tests;
