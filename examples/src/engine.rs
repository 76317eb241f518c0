//! The container engine of a node: its files, and how they are edited.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::ValueEnum;
use gpu_runtime_config::{
    Plan, Settings,
    apply::{self, Apply, Health, Outcome, Restart, read_containerd, read_crio, read_file, read_receipt},
    containerd::{self, Placement, Version},
    crio, docker, revert,
};

use crate::program::BadUsage;

/// The engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    Containerd,
    Crio,
    Docker,
}

impl Engine {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Crio => "crio",
            Self::Docker => "docker",
        }
    }

    /// Where the main file is by default.
    pub(crate) fn main(self) -> &'static str {
        match self {
            Self::Containerd => "/etc/containerd/config.toml",
            Self::Crio => "/etc/crio/crio.conf",
            Self::Docker => "/etc/docker/daemon.json",
        }
    }

    /// Where our drop-in is by default; Docker has none.
    pub(crate) fn drop_in(self) -> Option<&'static str> {
        match self {
            Self::Containerd => Some("/etc/containerd/conf.d/99-nvidia.toml"),
            Self::Crio => Some("/etc/crio/crio.conf.d/99-nvidia.toml"),
            Self::Docker => None,
        }
    }

    /// Where it listens by default.
    pub(crate) fn socket(self) -> &'static str {
        match self {
            Self::Containerd => "/run/containerd/containerd.sock",
            Self::Crio => "/var/run/crio/crio.sock",
            Self::Docker => "/var/run/docker.sock",
        }
    }
}

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
}

impl Target {
    /// An engine with these files, or with those that it has by default.
    pub(crate) fn new(
        engine: Engine,
        host_root: &Path,
        main: Option<PathBuf>,
        drop_in: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let given = |path: Option<PathBuf>| path.filter(|path| !path.as_os_str().is_empty());
        let (main, drop_in) = (given(main), given(drop_in));
        ensure!(
            drop_in.is_none() || engine.drop_in().is_some(),
            BadUsage::new("Docker reads no drop-in files")
        );
        for path in main.iter().chain(&drop_in) {
            let bad = || BadUsage::new(format_args!("`{}` is not an absolute path", path.display()));
            ensure!(path.is_absolute(), bad());
        }
        Ok(Self {
            engine,
            host_root: host_root.to_owned(),
            main: main.unwrap_or_else(|| engine.main().into()),
            drop_in: drop_in.unwrap_or_else(|| engine.drop_in().unwrap_or_default().into()),
            placement: Placement::Auto,
            version: None,
        })
    }

    /// What must be done so that the engine is set as asked.
    pub(crate) fn plan(&self, settings: &Settings) -> anyhow::Result<Plan> {
        let root = &self.host_root;
        let receipt = read_receipt(root, &self.main)?;
        let receipt = receipt.as_ref();
        Ok(match self.engine {
            Engine::Containerd => {
                let files = read_containerd(root, &self.main, &self.drop_in, receipt)?;
                containerd::configure(&files, self.version, self.placement, settings, receipt)?
            }
            Engine::Crio => {
                let files = read_crio(root, &self.main, &self.drop_in, receipt)?;
                crio::configure(&files, settings, receipt)?
            }
            Engine::Docker => docker::configure(&read_file(root, &self.main)?, &[], settings, receipt)?,
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

    /// Writes a plan's files and, as told, restarts the engine and looks whether it lives.
    pub(crate) fn apply(&self, plan: &Plan, restart: Restart, health: Option<Health>) -> anyhow::Result<Outcome> {
        let how = Apply {
            host_root: self.host_root.clone(),
            main: self.main.clone(),
            restart,
            health,
        };
        Ok(apply::apply(plan, &how)?)
    }
}
