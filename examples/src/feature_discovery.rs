//! `gpu-feature-discovery`: labels this node with its GPUs, in the place of the vendor's program of that name.

use std::{ffi::OsString, process::ExitCode};

use self::arguments::FeatureDiscovery;
use crate::{executor, program};

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
        if settings.config.gfd.oneshot {
            executor::run(daemon::run_once(&arguments, settings))
        } else {
            executor::run(daemon::run(&arguments, settings))
        }
    })
}

#[cfg(test)]
mod tests;
