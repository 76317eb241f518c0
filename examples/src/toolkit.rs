//! `gpu-toolkit`: prepares a node for containers with GPUs, in the place of `nvidia-ctk-installer`, the toolkit DaemonSet.
//!
//! It installs the container runtime and the hooks, describes the GPUs for CDI and again when they change, makes the engine
//! offer the runtime, and takes that back when it ends. What is installed stays: containers refer to it.
//!
//! The driver's library is loaded by a child of this program, which describes the node and ends: the memory that it takes is
//! given back with it, a driver that hangs or breaks keeps the engine's set-up from nothing, and one that is replaced is not
//! held open.

use std::{
    ffi::OsString,
    fs::{self, File, TryLockError},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use clap::{CommandFactory, Parser};
use gpu_runtime_config::{
    Plan,
    apply::{Outcome, containerd_version},
};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    device_nodes,
    engine::{Engine, Target},
    executor,
    logging::Logging,
    program::{self, print},
    vendor,
};

mod arguments;
mod child;
mod host;
mod install;
mod specs;

use arguments::{Arguments, UNSUPPORTED};
use specs::Specs;

/// How often the node's driver and device nodes are looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

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
    #[arg(long, hide = true)]
    describe: bool,
}

/// Runs `gpu-toolkit` with these arguments, the program's name first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let command = vendor::understand(Toolkit::command(), UNSUPPORTED);
    let toolkit: Toolkit = program::parse_with(command, &[], arguments);
    program::run(|| {
        toolkit.logging.start()?;
        let arguments = &toolkit.arguments;
        arguments.check();
        if toolkit.describe {
            return specs::describe(arguments);
        }
        if arguments.dry_run {
            return dry_run(arguments);
        }
        let _lock = lock(&arguments.pid_file)?;
        executor::run(run(arguments))
    })
}

async fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // Before anything is changed: what ends the program in between must still undo it.
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;

    let target = arguments.target()?;
    install::install(arguments, &target)?;
    if arguments.creates_control_nodes() {
        create_nodes(arguments, &device_nodes::control(&arguments.host_root));
    }
    let mut specs = Specs::new(arguments);
    tokio::select! {
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
        described = specs.update() => described?,
    }
    let configured = !arguments.no_runtime_config;
    if configured {
        configure(arguments, &target)?;
    }
    if arguments.no_daemon {
        return Ok(());
    }
    tracing::info!("the node is set up; waiting for SIGTERM");
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            // A node whose driver is being replaced is described when that is done.
            looked = look_again(&mut specs) => if let Err(error) = looked {
                tracing::warn!("{error:#}");
            },
        }
    }
    if configured {
        tracing::info!("taking back what was set in {}", target.engine.name());
        if let Some(plan) = target.revert()? {
            carry_out(arguments, &target, &plan)?;
        }
    }
    Ok(())
}

async fn look_again(specs: &mut Specs<'_>) -> anyhow::Result<()> {
    tokio::time::sleep(LOOK_AGAIN).await;
    specs.update().await
}

/// The driver makes these only when a program of its own is run. What cannot be made is logged: that program may do better.
fn create_nodes(arguments: &Arguments, nodes: &[device_nodes::Node]) {
    let dev_root = arguments.dev_root_here();
    for node in nodes {
        match device_nodes::create(node, &dev_root) {
            Ok(true) => tracing::info!("made `{}`", node.path),
            Ok(false) => {}
            Err(error) => tracing::warn!("cannot make `{}`: {error}", node.path),
        }
    }
}

fn configure(arguments: &Arguments, target: &Target) -> anyhow::Result<()> {
    let plan = target.plan(&arguments.settings())?;
    for notice in &plan.notices {
        tracing::warn!("{notice}");
    }
    carry_out(arguments, target, &plan)
}

fn carry_out(arguments: &Arguments, target: &Target, plan: &Plan) -> anyhow::Result<()> {
    let engine = target.engine.name();
    let (restart, health) = arguments.restart(target)?;
    match target.apply(plan, restart, health)? {
        Outcome::Unchanged => tracing::info!("{engine} is set as it should be: nothing written, nothing restarted"),
        Outcome::Applied => {
            for change in &plan.changes {
                let verb = if change.after.is_some() { "wrote" } else { "removed" };
                tracing::info!("{verb} `{}`", change.path.display());
            }
        }
        Outcome::RolledBack { cause, still: None } => {
            return Err(anyhow!(cause).context(format!(
                "{engine} has its old files back and runs, because of the new ones"
            )));
        }
        Outcome::RolledBack {
            cause,
            still: Some(still),
        } => {
            return Err(anyhow!(still).context(format!(
                "{engine} does not run with its old files either, after: {cause}"
            )));
        }
        other => bail!("cannot set up {engine}: {other:?}"),
    }
    Ok(())
}

fn dry_run(arguments: &Arguments) -> anyhow::Result<()> {
    let target = arguments.target()?;
    let folder = arguments.folder();
    for name in install::names() {
        print(format_args!("would install {}\n", folder.join(name).display()))?;
    }
    if arguments.no_runtime_config {
        return Ok(());
    }
    print(target.plan(&arguments.settings())?.diff())
}

/// Two of these on one node would undo each other's work.
fn lock(path: &PathBuf) -> anyhow::Result<File> {
    let make = || {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        File::options().create(true).truncate(false).write(true).open(path)
    };
    let file = make().with_context(|| format!("cannot open `{}`", path.display()))?;
    match file.try_lock() {
        Ok(()) => {
            fs::write(path, format!("{}\n", std::process::id()))
                .with_context(|| format!("cannot write `{}`", path.display()))?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => bail!("another gpu-toolkit holds `{}`", path.display()),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock `{}`", path.display())),
    }
}

impl Arguments {
    /// The engine's files as the host knows them.
    fn target(&self) -> anyhow::Result<Target> {
        let engine = self.runtime;
        let folders = host::Folders::new(&self.host_root);
        let main = folders.on_host(self.main(), &host::mains(engine))?;
        let drop_in = match &self.drop_in_config_host_path {
            Some(path) if !path.as_os_str().is_empty() => {
                if let Some(here) = self.drop_in() {
                    folders.cover(&here, path)?;
                }
                Some(path.clone())
            }
            _ => folders.on_host(self.drop_in(), &host::drop_ins(engine))?,
        };
        let mut target = Target::new(engine, &self.host_root, main, drop_in)?;
        if engine == Engine::Containerd {
            let socket = self.socket_on_host()?;
            target.version = containerd_version(&self.host_root, &socket, self.executable_path.as_deref());
            if target.version.is_none() {
                tracing::warn!("the version of containerd cannot be told: what is written suits all of them");
            }
        }
        Ok(target)
    }

    fn socket_on_host(&self) -> anyhow::Result<PathBuf> {
        let folders = host::Folders::new(&self.host_root);
        let socket = folders.on_host(self.socket(), &host::sockets(self.runtime))?;
        Ok(socket.unwrap_or_else(|| self.runtime.socket().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        Toolkit::command().debug_assert();
    }

    #[test]
    fn a_second_one_on_the_node_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("toolkit/toolkit.pid");
        let first = lock(&path).unwrap();
        assert!(
            lock(&path)
                .unwrap_err()
                .to_string()
                .starts_with("another gpu-toolkit holds")
        );
        drop(first);
        lock(&path).unwrap();
    }
}
