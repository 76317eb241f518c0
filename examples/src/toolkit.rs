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
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use clap::{CommandFactory, Parser};
use gpu_runtime_config::{
    Plan, Preset,
    apply::{Error, Lock, Outcome, Stop},
};

use crate::{
    device_nodes,
    engine::{Engine, Target},
    executor, host_root,
    logging::Logging,
    program::{self, print},
    stop::StopSignals,
    vendor,
};

mod arguments;
mod child;
mod distribution;
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
        let arguments = Arc::new(toolkit.arguments);
        arguments.check();
        host_root::check(&arguments.host_root)?;
        if toolkit.describe {
            return specs::describe(&arguments);
        }
        if arguments.dry_run {
            return dry_run(&arguments);
        }
        let _lock = lock(&arguments.pid_file)?;
        executor::run(run(Arc::clone(&arguments)))
    })
}

async fn run(arguments: Arc<Arguments>) -> anyhow::Result<()> {
    // Before anything is changed: what ends the program in between must still undo it.
    let mut signals = StopSignals::new()?;

    install::programs(&arguments)?;
    if arguments.creates_control_nodes() {
        create_nodes(&arguments, &device_nodes::control(&arguments.host_root));
    }
    // Whatever is wrong with the engine: who finds the devices without it can use them.
    let mut specs = Specs::new(&arguments);
    tokio::select! {
        _ = signals.recv() => return Ok(()),
        described = specs.update() => described?,
    }
    let is_over = configure_until_stopped(&arguments, &mut signals).await?;
    if !is_over && !arguments.no_daemon {
        tracing::info!("the node is set up; waiting for SIGTERM");
        loop {
            tokio::select! {
                _ = signals.recv() => break,
                // A node whose driver is being replaced is described when that is done.
                looked = look_again(&mut specs) => if let Err(error) = looked {
                    tracing::warn!("{error:#}");
                },
            }
        }
    }
    if arguments.no_daemon || arguments.no_runtime_config {
        return Ok(());
    }
    take_back(&arguments)
}

/// Sets the engine up on another thread, since engines may hang; whether a signal came meanwhile, which ends it early.
async fn configure_until_stopped(arguments: &Arc<Arguments>, signals: &mut StopSignals) -> anyhow::Result<bool> {
    let stop = Stop::default();
    let (arguments, other) = (Arc::clone(arguments), stop.clone());
    let mut configured = tokio::task::spawn_blocking(move || configure(&arguments, &other));
    tokio::select! {
        result = &mut configured => return result?.map(|()| false),
        signal = signals.recv() => tracing::info!("{signal}: the set-up ends"),
    }
    stop.stop();
    if let Err(error) = configured.await? {
        tracing::warn!("{error:#}");
    }
    Ok(true)
}

/// Writes the installed programs' configuration and makes the engine offer the runtime.
fn configure(arguments: &Arguments, stop: &Stop) -> anyhow::Result<()> {
    let mut target = arguments.target()?;
    let lock = target.lock(stop)?;
    let socket = arguments.socket_on_host(&target)?;
    let executable = arguments.executable_path.as_deref();
    target.settle(arguments.containerd_version, &socket, executable, stop)?;
    if target.engine == Engine::Containerd && target.version.is_none() {
        tracing::warn!("the version of containerd cannot be told: what is written suits all of them");
    }
    install::configuration(arguments, &target)?;
    if arguments.no_runtime_config {
        return Ok(());
    }
    let plan = target.plan(&arguments.settings())?;
    for notice in &plan.notices {
        tracing::warn!("{notice}");
    }
    carry_out(arguments, &target, &plan, stop, &lock)
}

fn take_back(arguments: &Arguments) -> anyhow::Result<()> {
    let (target, stop) = (arguments.target()?, Stop::default());
    let lock = target.lock(&stop)?;
    tracing::info!("taking back what was set in {}", target.engine.name());
    match target.revert()? {
        Some(plan) => carry_out(arguments, &target, &plan, &stop, &lock),
        None => Ok(()),
    }
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

fn carry_out(arguments: &Arguments, target: &Target, plan: &Plan, stop: &Stop, lock: &Lock) -> anyhow::Result<()> {
    let engine = target.engine.name();
    let (restart, health) = arguments.restart(target)?;
    match target.apply(plan, restart, health, stop, lock)? {
        Outcome::Unchanged => tracing::info!("{engine} is set as it should be: nothing written, nothing restarted"),
        Outcome::Applied => {
            for change in &plan.changes {
                let verb = if change.after.is_some() { "wrote" } else { "removed" };
                tracing::info!("{verb} `{}`", change.path.display());
            }
        }
        Outcome::RolledBack {
            cause: Error::Stopped,
            still: None,
        } => bail!("{engine} has its old files back: the program was told to end"),
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
    let mut target = arguments.target()?;
    let folder = arguments.folder();
    for name in install::names() {
        print(format_args!("would install {}\n", folder.join(name).display()))?;
    }
    if arguments.no_runtime_config {
        return Ok(());
    }
    let socket = arguments.socket_on_host(&target)?;
    let executable = arguments.executable_path.as_deref();
    target.settle(arguments.containerd_version, &socket, executable, &Stop::default())?;
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
        let Some(preset) = self.distribution(main.as_deref())? else {
            return Target::new(engine, &self.host_root, main, drop_in);
        };
        tracing::info!("containerd is that of {preset}");
        if let Some(note) = preset.note() {
            tracing::info!("{note}");
        }
        // The operator gives containerd's own place where nobody says another, and a distribution never looks there.
        let drop_in = drop_in.filter(|path| engine.drop_in().is_none_or(|own| path != Path::new(own)));
        Target::of_preset(preset, &self.host_root, drop_in)
    }

    fn distribution(&self, main: Option<&Path>) -> anyhow::Result<Option<Preset>> {
        if self.runtime != Engine::Containerd {
            return Ok(None);
        }
        self.preset
            .on_host(&self.host_root, main, self.given_socket()?.as_deref())
    }

    fn given_socket(&self) -> anyhow::Result<Option<PathBuf>> {
        host::Folders::new(&self.host_root).on_host(self.socket(), &host::sockets(self.runtime))
    }

    fn socket_on_host(&self, target: &Target) -> anyhow::Result<PathBuf> {
        let usual = target.preset.map_or(target.engine.socket(), Preset::socket);
        Ok(self.given_socket()?.unwrap_or_else(|| usual.into()))
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
