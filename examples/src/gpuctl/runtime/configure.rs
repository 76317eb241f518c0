use std::{ffi::OsString, path::PathBuf};

use clap::{Args, ValueEnum};
use gpu_runtime_config::{Cdi, Plan, Preset, Runtime, Settings, apply::Stop, containerd::Version};

use super::{
    node::{Node, lock},
    outcome::{carry_out, notices, show},
};
use crate::{
    engine::{Engine, Target},
    program::{print, remark},
    vendor,
};

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct Configure {
    #[command(flatten)]
    pub(super) wanted: Wanted,

    /// Says what would be written and prints what the files would hold, and writes nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub(in crate::gpuctl) struct Diff {
    #[command(flatten)]
    pub(super) wanted: Wanted,
}

/// The flags of `nvidia-ctk runtime configure` (v1.20), but for those of OCI hooks.
#[derive(Debug, Args)]
pub(super) struct Wanted {
    #[command(flatten)]
    pub(super) node: Node,

    /// The drop-in to write, where one is; empty for the default [default: /etc/containerd/conf.d/99-nvidia.toml or
    /// /etc/crio/crio.conf.d/99-nvidia.toml]
    #[arg(long, value_name = "PATH")]
    drop_in_config: Option<OsString>,

    /// The program behind the engine, asked for its version [default: what listens on the socket]
    #[arg(long, value_name = "PATH")]
    executable_path: Option<PathBuf>,

    /// How the engine is made to use the runtime: by its configuration
    #[arg(long, value_enum, default_value = "config", hide_possible_values = true)]
    config_mode: ConfigMode,

    /// Where the engine's settings are read from: always its files, merged as the engine does it
    #[arg(long, value_enum, default_value = "file", hide_possible_values = true)]
    config_source: ConfigSource,

    /// The name of the runtime
    #[arg(long, default_value = "nvidia", value_name = "NAME")]
    nvidia_runtime_name: String,

    /// Its program [default: /usr/bin/nvidia-container-runtime; for Docker: nvidia-container-runtime]
    #[arg(long, alias = "runtime-path", value_name = "PATH")]
    nvidia_runtime_path: Option<String>,

    /// Makes it the runtime of containers that name none
    #[arg(long, alias = "set-as-default", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    nvidia_set_as_default: bool,

    /// Makes the engine inject CDI devices
    #[arg(long = "enable-cdi", aliases = ["cdi.enable", "cdi.enabled"], value_parser = vendor::parse_bool,
          num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
          value_name = "BOOL")]
    enable_cdi: bool,

    /// The version of containerd [default: asked of what listens on the socket; where nobody tells it, what is written
    /// suits all versions, and a warning says so] (an addition of this program)
    #[arg(long, value_name = "VERSION")]
    containerd_version: Option<Version>,

    /// The socket of the engine [default: the engine's own] (an addition of this program)
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ConfigMode {
    #[value(alias = "", alias = "config-file")]
    Config,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ConfigSource {
    #[value(alias = "command")]
    File,
}

impl Configure {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let mut target = self.wanted.target()?;
        let lock = lock(&target, self.dry_run)?;
        let plan = self.wanted.plan(&mut target)?;
        match lock {
            Some(lock) => carry_out(&target, &plan, &lock),
            None => show(&target, &plan, &target.files()),
        }
    }
}

impl Diff {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        print(self.wanted.plan(&mut self.wanted.target()?)?.diff())
    }
}

impl Wanted {
    fn target(&self) -> anyhow::Result<Target> {
        self.node.target(self.drop_in_config.as_ref())
    }

    fn plan(&self, target: &mut Target) -> anyhow::Result<Plan> {
        let (ConfigMode::Config, ConfigSource::File) = (self.config_mode, self.config_source);
        let socket = self.node.preset.map_or(target.engine.socket(), Preset::socket);
        let socket = self.socket.clone().unwrap_or_else(|| socket.into());
        let executable = self.executable_path.as_deref();
        target.settle(self.containerd_version, &socket, executable, &Stop::default())?;
        let plan = target.plan(&self.settings())?;
        notices(target, &plan);
        for warning in target.warnings(&plan) {
            remark(format_args!("warning: {warning}"));
        }
        Ok(plan)
    }

    fn settings(&self) -> Settings {
        let name = &self.nvidia_runtime_name;
        let path = self.nvidia_runtime_path.clone().filter(|path| !path.is_empty());
        let path = path.unwrap_or_else(|| {
            match self.node.runtime() {
                Engine::Docker => "nvidia-container-runtime",
                Engine::Containerd | Engine::Crio => "/usr/bin/nvidia-container-runtime",
            }
            .to_owned()
        });
        Settings {
            runtimes: vec![Runtime::new(name, path)],
            default_runtime: self.nvidia_set_as_default.then(|| name.clone()),
            cdi: self.enable_cdi.then(Cdi::default),
            container_annotations: Vec::new(),
        }
    }
}
