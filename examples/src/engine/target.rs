//! The files of an engine, and how they are edited.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use gpu_core::root::Root;
use gpu_runtime_config::{
    Lifetime, Plan, Preset, Receipt, Settings,
    apply::{
        self, Apply, Health, Lock, Outcome, Restart, Step, Stop, containerd_version, read_containerd, read_crio,
        read_file, read_receipt,
    },
    containerd::{self, Placement, Version},
    crio, docker, revert,
};

use super::Engine;
use crate::{host_root, program::BadUsage};

/// One engine's files on a host.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) engine: Engine,
    /// Where the host's files are.
    pub(crate) host_root: PathBuf,
    /// The main file, on the host.
    pub(crate) main: PathBuf,
    /// The drop-in, on the host.
    pub(crate) drop_in: PathBuf,
    /// Which of containerd's files may be edited.
    pub(crate) placement: Placement,
    /// The version of containerd, if it is known.
    pub(crate) version: Option<Version>,
    /// The distribution whose containerd it is.
    pub(crate) preset: Option<Preset>,
    /// Whether somebody says where the drop-in is to be.
    drop_in_is_given: bool,
}

/// The version of files of the newest containerd, which is assumed until the one that is there is known.
const NEWEST: u32 = 4;

impl Target {
    /// An engine with these files, or with those that it has by default.
    pub(crate) fn new(
        engine: Engine,
        host_root: &Path,
        main: Option<PathBuf>,
        drop_in: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        host_root::check(host_root)?;
        let given = |path: Option<PathBuf>| path.filter(|path| !path.as_os_str().is_empty());
        let (main, drop_in) = (given(main), given(drop_in));
        ensure!(
            drop_in.is_none() || engine.drop_in().is_some(),
            BadUsage::new("Docker reads no drop-in files")
        );
        for (what, path) in [("main file", &main), ("drop-in", &drop_in)] {
            if let Some(path) = path {
                let bad = || {
                    BadUsage::new(format_args!(
                        "the engine's {what} `{}` is not an absolute path",
                        path.display()
                    ))
                };
                ensure!(path.is_absolute(), bad());
            }
        }
        Ok(Self {
            engine,
            host_root: host_root.to_owned(),
            main: main.unwrap_or_else(|| engine.main().into()),
            drop_in: drop_in.unwrap_or_else(|| engine.drop_in().unwrap_or_default().into()),
            placement: Placement::Auto,
            version: None,
            preset: None,
            drop_in_is_given: false,
        })
    }

    /// The containerd of a distribution. With a drop-in of its own that is what is written, else the distribution's, which
    /// is known when the version is ([`settle`](Self::settle)).
    pub(crate) fn of_preset(preset: Preset, host_root: &Path, drop_in: Option<PathBuf>) -> anyhow::Result<Self> {
        ensure!(
            preset.lifetime() != Lifetime::ReadOnly,
            "the files of {preset} cannot be edited"
        );
        let is_given = drop_in.is_some();
        let drop_in = drop_in.unwrap_or_else(|| preset.drop_in(NEWEST).into());
        let mut target = Self::new(Engine::Containerd, host_root, Some(preset.main().into()), Some(drop_in))?;
        target.placement = preset.placement();
        target.preset = Some(preset);
        target.drop_in_is_given = is_given;
        ensure!(
            !preset.needs_main() || read_file(host_root, &target.main)?.text.is_some(),
            "there is no `{}`: this is no {preset}, or not one yet",
            target.main.display()
        );
        Ok(target)
    }

    /// The files that it reads its settings from: the drop-in, then the main file.
    #[cfg(feature = "gpuctl")]
    pub(crate) fn files(&self) -> Vec<&Path> {
        let drop_in = self.engine.drop_in().map(|_| self.drop_in.as_path());
        drop_in.into_iter().chain([self.main.as_path()]).collect()
    }

    /// Where a path of the host is from here.
    pub(crate) fn here(&self, path: &Path) -> PathBuf {
        self.host_root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Asks containerd for its version, or takes one that is given, and with that settles where the drop-in is.
    pub(crate) fn settle(
        &mut self,
        given: Option<Version>,
        socket: &Path,
        executable: Option<&Path>,
        stop: &Stop,
    ) -> anyhow::Result<()> {
        if self.engine != Engine::Containerd {
            return Ok(());
        }
        self.version = given.or_else(|| containerd_version(&self.host_root, socket, executable, stop));
        if let Some(preset) = self.preset.filter(|_| !self.drop_in_is_given) {
            let main = read_file(&self.host_root, &self.main)?;
            if let Some(version) = containerd::drop_in_version(&main, self.version)? {
                self.drop_in = preset.drop_in(version).into();
            }
        }
        Ok(())
    }

    /// What must be done so that the engine is set as asked.
    pub(crate) fn plan(&self, settings: &Settings) -> anyhow::Result<Plan> {
        let root = &self.host_root;
        let receipt = read_receipt(root, &self.main)?;
        let receipt = receipt.as_ref();
        Ok(match self.engine {
            Engine::Containerd => {
                let files = read_containerd(root, &self.main, &self.drop_in, receipt)?;
                containerd::configure(&files, self.version, self.placement, settings, receipt).map_err(advised)?
            }
            Engine::Crio => {
                let files = read_crio(root, &self.main, &self.drop_in, receipt)?;
                crio::configure(&files, settings, receipt)?
            }
            Engine::Docker => docker::configure(&read_file(root, &self.main)?, &[], settings, receipt)?,
        })
    }

    /// What a person should be warned of before a plan is carried out.
    pub(crate) fn warnings(&self, plan: &Plan) -> Vec<String> {
        let unknown = self.engine == Engine::Containerd && self.version.is_none();
        let unknown = unknown.then(|| {
            "the version of containerd cannot be told: what is written suits all of them; say it by `--containerd-version`"
                .to_owned()
        });
        unknown.into_iter().chain(self.new_folder(plan)).collect()
    }

    /// A main file that is not there is made or taken as empty, as by the vendor's program; that there is not even its folder
    /// tells of a mistyped path, or of a node without this engine.
    fn new_folder(&self, plan: &Plan) -> Option<String> {
        let folder = self.main.parent().unwrap_or(Path::new("/"));
        let is_there = || Root::open(&self.host_root).is_ok_and(|root| root.stat(folder).is_ok());
        let is_made = plan.changes.iter().any(|change| change.before.is_none());
        (is_made && !is_there()).then(|| {
            format!(
                "there is no folder `{}`: is this where {} reads its file?",
                self.here(folder).display(),
                self.engine.name()
            )
        })
    }

    /// The low-level runtimes that the engine runs containers with.
    pub(crate) fn low_level_runtimes(&self, settings: &Settings) -> anyhow::Result<Vec<String>> {
        let root = &self.host_root;
        Ok(match self.engine {
            Engine::Containerd => {
                let files = read_containerd(root, &self.main, &self.drop_in, None)?;
                containerd::low_level_runtimes(&files, self.version, settings)?
            }
            Engine::Crio => crio::low_level_runtimes(&read_crio(root, &self.main, &self.drop_in, None)?, settings)?,
            Engine::Docker => ["runc", "crun"].map(str::to_owned).to_vec(),
        })
    }

    /// What must be done to take back what earlier plans did; `None` if nothing was done.
    pub(crate) fn revert(&self) -> anyhow::Result<Option<Plan>> {
        let Some(receipt) = read_receipt(&self.host_root, &self.main)? else {
            return Ok(None);
        };
        let found = receipt
            .paths()
            .map(|path| read_file(&self.host_root, path))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Some(revert(&found, &receipt)?))
    }

    /// Takes the right to change the files; to be held from before a plan is made until it is carried out. That another
    /// program has it is told before it is waited for.
    pub(crate) fn lock(&self, stop: &Stop, tell: impl FnOnce(&str)) -> anyhow::Result<Lock> {
        if let Some(lock) = apply::try_lock(&self.host_root)? {
            return Ok(lock);
        }
        tell("another program is changing the files of the engines: waiting for it");
        Ok(apply::lock(&self.host_root, stop)?)
    }

    /// Writes a plan's files and, as told, restarts the engine and looks whether it lives.
    pub(crate) fn apply(
        &self,
        plan: &Plan,
        restart: Restart,
        health: Option<Health>,
        stop: &Stop,
        tell: fn(Step<'_>),
        lock: &Lock,
    ) -> anyhow::Result<Outcome> {
        let how = Apply {
            host_root: self.host_root.clone(),
            main: self.main.clone(),
            restart,
            health,
            stop: stop.clone(),
            tell,
        };
        Ok(apply::apply(plan, &how, lock)?)
    }
}

#[cfg(feature = "toolkit")]
impl Target {
    /// Whether anything of ours is in the files, be it half done.
    pub(crate) fn is_set(&self) -> anyhow::Result<bool> {
        Ok(read_receipt(&self.host_root, &self.main)?.is_some())
    }

    /// Whether carrying the plan out changes anything.
    pub(crate) fn is_due(&self, plan: &Plan) -> anyhow::Result<bool> {
        Ok(apply::is_due(plan, &self.host_root, &self.main)?)
    }

    /// The files of ours that are on the host, as far as that can be told: those that were changed, and the receipt.
    pub(crate) fn ours(&self) -> Vec<PathBuf> {
        let receipt = read_receipt(&self.host_root, &self.main).ok().flatten();
        let changed = receipt.iter().flat_map(Receipt::paths).map(Path::to_owned);
        changed.chain([self.receipt()]).collect()
    }

    /// Where what takes a plan back is kept, on the host.
    pub(crate) fn receipt(&self) -> PathBuf {
        apply::receipt_path(&self.main)
    }
}

/// The error with what a person can do about it.
fn advised(error: gpu_runtime_config::Error) -> anyhow::Error {
    let is_unknown = matches!(error, gpu_runtime_config::Error::UnknownDaemon { .. });
    let error = anyhow::Error::from(error);
    if is_unknown {
        return error.context("start it, or say which it is by `--executable-path` or `--containerd-version`");
    }
    error
}
