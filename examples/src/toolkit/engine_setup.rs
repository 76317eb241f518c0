//! What is to be done to the engine, known before anything on the node changes.

use anyhow::{Context as _, anyhow, bail};
use gpu_runtime_config::{
    Plan, Preset,
    apply::{Error, Health, Lock, Outcome, Step, Stop},
    containerd::Version,
};

use super::{arguments::Arguments, configuration, installed_file::InstalledFile, restart};
use crate::{
    engine::{Target, news},
    program::print,
};

/// The engine's part of a set-up.
#[derive(Debug)]
pub(super) struct EngineSetup {
    target: Target,
    /// The configuration of the installed programs, which names the engine's low-level runtimes.
    configuration: InstalledFile,
    /// What changes in the engine's files; `None` if they are to be left alone.
    plan: Option<Plan>,
}

impl EngineSetup {
    /// Reads the engine's files and works out what is to change.
    ///
    /// # Errors
    /// If one of them cannot be read, understood or edited.
    pub(super) fn find(arguments: &Arguments, stop: &Stop) -> anyhow::Result<Self> {
        Self::with_version(arguments, arguments.containerd_version, stop)
    }

    fn with_version(arguments: &Arguments, version: Option<Version>, stop: &Stop) -> anyhow::Result<Self> {
        let mut target = arguments.target()?;
        let socket = arguments.socket_on_host(&target)?;
        target.settle(version, &socket, arguments.executable_path.as_deref(), stop)?;
        let plan = if arguments.no_runtime_config {
            None
        } else {
            Some(target.plan(&arguments.settings()?)?)
        };
        Ok(Self {
            configuration: configuration::file(arguments, &target)?,
            target,
            plan,
        })
    }

    /// Logs what a person should know of it.
    pub(super) fn tell(&self) {
        let target = &self.target;
        if let Some(preset) = target.preset {
            tracing::info!("containerd is that of {preset}");
        }
        if let Some(note) = target.preset.and_then(Preset::note) {
            tracing::info!("{note}");
        }
        if let Some(plan) = &self.plan {
            for warning in target.warnings(plan) {
                tracing::warn!("{warning}");
            }
            tell(plan);
        }
    }

    /// Writes the installed programs' configuration and makes the engine offer the runtime.
    pub(super) fn carry_out(&self, arguments: &Arguments, stop: &Stop) -> anyhow::Result<()> {
        let lock = self.target.lock(stop, |text| tracing::info!("{text}"))?;
        // Somebody may have changed the engine's files before the lock was taken.
        let now = Self::with_version(arguments, self.target.version, stop)?;
        now.configuration.put()?;
        match &now.plan {
            Some(plan) => apply(arguments, &now.target, plan, stop, &lock),
            None => Ok(()),
        }
    }

    /// Says what [`carry_out`](Self::carry_out) would do.
    pub(super) fn announce(&self, arguments: &Arguments) -> anyhow::Result<()> {
        self.configuration.announce()?;
        let (target, engine) = (&self.target, self.target.engine.name());
        let Some(plan) = &self.plan else {
            return print(format_args!("would leave {engine} alone\n"));
        };
        if !target.is_due(plan)? {
            return print(format_args!(
                "would leave {engine} as it is: it is set as it should be\n"
            ));
        }
        for change in &plan.changes {
            let verb = if change.after.is_some() { "write" } else { "remove" };
            print(format_args!(
                "would {verb} `{}`:\n{}",
                change.path.display(),
                change.diff()
            ))?;
        }
        if plan.is_empty() {
            print(format_args!(
                "would finish a change of {engine}'s files that was interrupted\n"
            ))?;
        } else if plan.receipt.is_some() {
            let receipt = target.receipt();
            print(format_args!(
                "would keep what takes this back in `{}`\n",
                receipt.display()
            ))?;
        }
        let (restart, health) = restart::restart(arguments, target)?;
        let deserted = |health: &&Health| health.socket.is_deserted(&target.host_root, &Stop::default());
        if let Some(health) = health.as_ref().filter(deserted) {
            tracing::warn!(
                "nothing is behind `{}`: where {engine} is not started meanwhile, a run puts its old files back after {} s",
                health.socket.path.display(),
                health.timeout.as_secs()
            );
        }
        print(restart::announcement(engine, &restart, health.as_ref()))
    }

    pub(super) fn engine(&self) -> &'static str {
        self.target.engine.name()
    }
}

fn tell(plan: &Plan) {
    for notice in news(plan) {
        tracing::warn!("{notice}");
    }
}

/// Takes back what was set in the engine's files.
pub(super) fn take_back(arguments: &Arguments, stop: &Stop) -> anyhow::Result<()> {
    let target = arguments.target()?;
    let engine = target.engine.name();
    if !target.is_set()? {
        tracing::info!("{engine} is as it was: nothing of ours is in its files");
        return Ok(());
    }
    tracing::info!("taking back what was set in {engine}");
    let stays = || {
        let paths: Vec<_> = target
            .ours()
            .iter()
            .map(|path| format!("`{}`", path.display()))
            .collect();
        format!("what was set in {engine} stays: {}", paths.join(", "))
    };
    let lock = target.lock(stop, |text| tracing::info!("{text}")).with_context(stays)?;
    let Some(plan) = target.revert().with_context(stays)? else {
        return Ok(());
    };
    tell(&plan);
    let done = write(arguments, &target, &plan, stop, &lock).with_context(stays)?;
    conclude(engine, done)
}

fn apply(arguments: &Arguments, target: &Target, plan: &Plan, stop: &Stop, lock: &Lock) -> anyhow::Result<()> {
    conclude(target.engine.name(), write(arguments, target, plan, stop, lock)?)
}

/// What came of a plan.
struct Done {
    outcome: Outcome,
    is_awaited: bool,
}

/// Carries a plan out.
///
/// # Errors
/// If the engine's files are as they were.
fn write(arguments: &Arguments, target: &Target, plan: &Plan, stop: &Stop, lock: &Lock) -> anyhow::Result<Done> {
    let (restart, health) = restart::restart(arguments, target)?;
    arguments.make_writable(target)?;
    Ok(Done {
        is_awaited: health.is_some(),
        outcome: target.apply(plan, restart, health, stop, log, lock)?,
    })
}

fn conclude(engine: &str, Done { outcome, is_awaited }: Done) -> anyhow::Result<()> {
    match outcome {
        Outcome::Unchanged => tracing::info!("{engine} is set as it should be: nothing written, nothing restarted"),
        Outcome::Applied if is_awaited => tracing::info!("{engine} lives with its files as they are now"),
        Outcome::Applied => {
            tracing::info!(
                "{engine} has still to be restarted: `RUNTIME_RESTART_MODE=none` leaves that to somebody else"
            );
        }
        Outcome::NotAwaited { untold: None } => {
            tracing::warn!("{engine} has its old files and is not waited for: look whether it runs");
        }
        Outcome::NotAwaited { untold: Some(error) } => {
            return Err(anyhow!(error).context(format!("{engine} has its old files and is to be restarted")));
        }
        Outcome::RolledBack { cause, still } => return Err(rolled_back(engine, cause, still)),
        other => bail!("cannot set up {engine}: {other}"),
    }
    Ok(())
}

fn log(step: Step<'_>) {
    match step {
        Step::Written(changes) => {
            for change in changes {
                let verb = if change.after.is_some() { "wrote" } else { "removed" };
                tracing::info!("{verb} `{}`", change.path.display());
            }
        }
        Step::Awaited(health) => tracing::info!(
            "waiting for the engine behind `{}`, up to {} s",
            health.socket.path.display(),
            health.timeout.as_secs()
        ),
        Step::TakenBack { cause } => tracing::warn!("the old files are back: {cause}"),
        _ => {}
    }
}

fn rolled_back(engine: &str, cause: Error, still: Option<Error>) -> anyhow::Error {
    match still {
        None => anyhow!(cause).context(format!("{engine} has its old files back")),
        Some(still) => {
            let remedy = match &still {
                Error::Unhealthy { .. } => {
                    " (where it listens elsewhere, say it by `RUNTIME_SOCKET`; `RUNTIME_RESTART_MODE=none` leaves restart and wait \
                     to somebody else)"
                }
                _ => "",
            };
            anyhow!(still).context(format!(
                "{engine} has its old files back and does not run with them either{remedy}, after: {cause}"
            ))
        }
    }
}
