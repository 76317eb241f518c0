//! Which engine's files are meant.

use std::{ffi::OsString, path::PathBuf};

use anyhow::ensure;
use clap::Args;
use gpu_runtime_config::{
    Preset,
    apply::{Lock, Stop},
};

use crate::{
    engine::{Engine, Target},
    names,
    program::{BadUsage, remark},
};

#[derive(Debug, Args)]
pub(super) struct Node {
    /// The engine [default: docker; with `--preset`: containerd]
    #[arg(long, value_enum)]
    runtime: Option<Engine>,

    /// Its main file [default: /etc/containerd/config.toml, /etc/crio/crio.conf or /etc/docker/daemon.json]
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,

    /// A distribution whose containerd it is, in place of `--config` and `--drop-in-config`: kubeadm, k3s, rke2, k0s,
    /// microk8s, eks, gke, aks, talos or bottlerocket (an addition of this program)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["config", "drop_in_config"])]
    pub(super) preset: Option<Preset>,

    /// The folder that stands for the host's `/`, such as `/host` in a container: every path of the host, those of
    /// other flags too, is read and written beneath it (an addition of this program)
    #[arg(long, value_name = "PATH", env = names::HOST_ROOT, default_value = "/")]
    host_root: PathBuf,
}

impl Node {
    pub(super) fn runtime(&self) -> Engine {
        self.runtime.unwrap_or(match self.preset {
            Some(_) => Engine::Containerd,
            None => Engine::Docker,
        })
    }

    /// The engine's files; a drop-in of no name is the usual one.
    pub(super) fn target(&self, drop_in: Option<&OsString>) -> anyhow::Result<Target> {
        let drop_in = drop_in.filter(|path| !path.is_empty()).map(PathBuf::from);
        let Some(preset) = self.preset else {
            return Target::new(self.runtime(), &self.host_root, self.config.clone(), drop_in);
        };
        ensure!(
            self.runtime() == Engine::Containerd,
            BadUsage::new("`--preset` is for `--runtime=containerd`")
        );
        if let Some(note) = preset.note() {
            remark(format_args!("{preset}: {note}"));
        }
        Target::of_preset(preset, &self.host_root, None)
    }
}

impl Node {
    /// What a reader of the host's paths in an error must know, if anything.
    pub(super) fn whereabouts(&self) -> Option<String> {
        let root = self.host_root.as_path();
        let is_told = root != "/" && root.is_dir();
        is_told.then(|| format!("paths are the host's, whose `/` is `{}` here", root.display()))
    }
}

/// The right to change an engine's files; what only shows something needs none.
pub(super) fn lock(target: &Target, dry_run: bool) -> anyhow::Result<Option<Lock>> {
    (!dry_run)
        .then(|| target.lock(&Stop::default(), |text| remark(text)))
        .transpose()
}
