//! `gpu-toolkit`: prepares a node for containers with GPUs, in the place of `nvidia-ctk-installer`, the toolkit DaemonSet.
//!
//! It installs the container runtime and the hooks, describes the GPUs for CDI and again when they change, makes the engine
//! offer the runtime, and takes that back when it ends. What is installed stays: containers refer to it.
//!
//! What would fail is looked for first: programs that are missing, and an engine's file that cannot be understood, end it before
//! anything is changed, as they end the vendor's program. An engine that does not come up with its new file gets its old one
//! back, and the node keeps the rest: whoever finds the devices without the engine can use them.
//!
//! The driver's library is loaded by a child of this program, which describes the node and ends: the memory that it takes is
//! given back with it, a driver that hangs or breaks keeps the engine's set-up from nothing, and one that is replaced is not
//! held open.

use std::{ffi::OsString, process::ExitCode, sync::Arc, time::Duration};

use anyhow::ensure;
use clap::{CommandFactory, Parser, ValueEnum};
use gpu_runtime_config::apply::Stop;

use crate::{executor, host_root, logging::Logging, program, stop::StopSignals, vendor};

mod arguments;
mod child;
mod configuration;
mod description;
mod distribution;
mod dry_run;
mod engine_setup;
mod fingerprint;
mod host;
mod installed_file;
mod nodes;
mod pid_file;
mod programs;
mod restart;
mod runtime_settings;
mod spec_file;
mod specs;
mod target;

use arguments::{Arguments, UNSUPPORTED};
use engine_setup::EngineSetup;
use nodes::Nodes;
use specs::Specs;

/// How often the node's driver and device nodes are looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// How long the engine is waited for when its files are taken back, another program that is changing them included: what comes
/// after it takes two seconds at most, and Kubernetes gives thirty unless told otherwise.
const END: Duration = Duration::from_secs(25);

/// Installs the container runtime and hooks on this node, describes its GPUs, and sets up the container engine.
///
/// Flags and environment variables are those of nvidia-ctk-installer v1.20. What of it is not supported is refused at the
/// start.
#[derive(Debug, Parser)]
#[command(name = "gpu-toolkit", version)]
struct Toolkit {
    #[command(flatten)]
    arguments: Arguments,

    #[command(flatten)]
    logging: Logging,

    /// Describes the node once and ends: what this program has a child of its own do
    #[arg(long, hide = true, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "first")]
    describe: Option<Describe>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Describe {
    First,
    /// One that looks as it did
    Again,
}

/// Runs `gpu-toolkit` with these arguments, the program's name first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let command = vendor::understand(Toolkit::command(), UNSUPPORTED);
    let toolkit: Toolkit = program::parse_with(command, &[], arguments);
    program::run(|| {
        toolkit.logging.start()?;
        let arguments = Arc::new(toolkit.arguments);
        arguments.check()?;
        host_root::check(&arguments.host_root)?;
        if let Some(describe) = toolkit.describe {
            return specs::describe(&arguments, describe == Describe::Again);
        }
        if arguments.dry_run {
            return executor::run(dry_run::run(&arguments));
        }
        let _held = pid_file::hold(arguments.pid_file())?;
        executor::run(run(Arc::clone(&arguments)))
    })
}

async fn run(arguments: Arc<Arguments>) -> anyhow::Result<()> {
    // Before anything is changed: what ends the program in between must still undo it.
    let mut signals = StopSignals::with_hangup()?;

    let programs = programs::find(&arguments)?;
    let shared = Arc::clone(&arguments);
    let found = unless_stopped(&mut signals, move |stop| EngineSetup::find(&shared, stop)).await?;
    let Some(setup) = found else {
        return interrupted(&arguments);
    };
    setup.tell();
    for program in &programs {
        program.put()?;
    }
    Nodes::Control.make(&arguments);
    let mut specs = Specs::new(&arguments);
    tokio::select! {
        signal = signals.recv() => {
            tracing::info!("{signal}: the set-up ends before anything of {} is changed", setup.engine());
            return interrupted(&arguments);
        }
        described = specs.update() => described?,
    }
    let shared = Arc::clone(&arguments);
    let done = unless_stopped(&mut signals, move |stop| setup.carry_out(&shared, stop)).await?;
    if arguments.no_daemon {
        return done.map_or_else(|| interrupted(&arguments), |()| Ok(()));
    }
    if done.is_some() {
        tracing::info!("the node is set up; waiting for SIGTERM");
        follow(&mut specs, &mut signals).await;
    }
    if arguments.no_runtime_config {
        return Ok(());
    }
    end(arguments, &mut signals).await
}

/// The end of a set-up that a signal ended: the end of a daemon, but no success of one that only sets up.
fn interrupted(arguments: &Arguments) -> anyhow::Result<()> {
    ensure!(
        !arguments.no_daemon,
        "a signal came: the node may not be set up in full"
    );
    Ok(())
}

/// Takes back what was set in the engine's files. A signal, or having taken long, ends the waiting, be it the first thing that
/// comes: the files are taken back all the same, unless another program is changing them, and the engine is told and left.
async fn end(arguments: Arc<Arguments>, signals: &mut StopSignals) -> anyhow::Result<()> {
    let stop = Stop::default();
    let other = stop.clone();
    let mut working = tokio::task::spawn_blocking(move || engine_setup::take_back(&arguments, &other));
    tokio::select! {
        result = &mut working => return result?,
        signal = signals.recv() => tracing::info!("{signal}: nothing is waited for any longer"),
        () = tokio::time::sleep(END) => tracing::warn!("nothing is waited for any longer, after {} s", END.as_secs()),
    }
    stop.stop();
    working.await?
}

/// Does on another thread what may wait for an engine; `None` if a signal came meanwhile, which ends it early.
async fn unless_stopped<T: Send + 'static>(
    signals: &mut StopSignals,
    work: impl FnOnce(&Stop) -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<Option<T>> {
    let stop = Stop::default();
    let other = stop.clone();
    let mut working = tokio::task::spawn_blocking(move || work(&other));
    tokio::select! {
        result = &mut working => return result?.map(Some),
        signal = signals.recv() => tracing::info!("{signal}: the set-up ends"),
    }
    stop.stop();
    if let Err(error) = working.await? {
        tracing::warn!("{error:#}");
    }
    Ok(None)
}

/// Has the node described again when it changes, until a signal comes.
async fn follow(specs: &mut Specs<'_>, signals: &mut StopSignals) {
    loop {
        tokio::select! {
            signal = signals.recv() => {
                tracing::info!("{signal}: it ends");
                return;
            }
            // A node whose driver is being replaced is described when that is done.
            looked = look_again(specs) => if let Err(error) = looked {
                tracing::warn!("{error:#}");
            },
        }
    }
}

async fn look_again(specs: &mut Specs<'_>) -> anyhow::Result<()> {
    tokio::time::sleep(LOOK_AGAIN).await;
    specs.update().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        Toolkit::command().debug_assert();
    }
}
