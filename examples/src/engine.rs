//! The container engine of a node.

#[cfg(feature = "toolkit")]
use std::path::PathBuf;

use clap::ValueEnum;
#[cfg(feature = "toolkit")]
use gpu_runtime_config::apply::Socket;
use gpu_runtime_config::{Notice, Plan};

mod target;

pub(crate) use self::target::Target;

/// The engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    Containerd,
    Crio,
    Docker,
}

/// What a person should know of a plan, and was not told when it was carried out.
pub(crate) fn news(plan: &Plan) -> impl Iterator<Item = &Notice> {
    let is_old = |notice: &&Notice| plan.is_empty() && **notice == Notice::NoTemplate;
    plan.notices.iter().filter(move |notice| !is_old(notice))
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

#[cfg(feature = "toolkit")]
impl Engine {
    /// Its socket at this path of the host.
    pub(crate) fn socket_at(self, path: PathBuf) -> Socket {
        match self {
            Self::Containerd | Self::Crio => Socket::own(path),
            Self::Docker => Socket::http(path),
        }
    }
}
