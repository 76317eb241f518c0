//! The vendor's flags and variables.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, ensure};
use clap::{Args, ValueEnum};
use gpu_runtime_config::{Cdi, Settings, containerd::Version};

use super::{distribution::Distribution, restart::RestartMode, runtime_settings::RuntimeSettings};
use crate::{
    engine::Engine,
    names,
    program::{BadUsage, check_absolute},
    toolkit_config, vendor,
};

/// The settings of `nvidia-ctk-installer` (v1.20) that this program has.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The folder on the host, seen here under the same path, that gets the folder `toolkit`; also set by `ROOT`
    #[arg(long, alias = "root", env = "TOOLKIT_INSTALL_DIR", value_name = "PATH",
          default_value_t = vendor::env_or("ROOT", "/usr/local/nvidia"))]
    pub(super) toolkit_install_dir: String,

    /// Where the programs to install are [default: beside this one]
    #[arg(long, env = "TOOLKIT_SOURCE_ROOT", value_name = "PATH")]
    pub(super) toolkit_source_root: Option<PathBuf>,

    /// The file that only one of these programs can hold, removed when it ends; also set by `PID_FILE`
    #[arg(long, env = "TOOLKIT_PID_FILE", value_name = "PATH",
          default_value_t = vendor::env_or("PID_FILE", "/run/nvidia/toolkit/toolkit.pid"))]
    pid_file: String,

    /// Ends when the node is set up, and leaves it so
    #[arg(short, long, env = "NO_DAEMON", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) no_daemon: bool,

    /// Leaves the engine as it is
    #[arg(long, env = "NO_RUNTIME_CONFIG", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) no_runtime_config: bool,

    /// Shows what would be done, and does nothing (an addition of this program)
    #[arg(long)]
    pub(super) dry_run: bool,

    /// The engine [default: docker; with a `--preset` other than auto: containerd]
    #[arg(short, long, env = "RUNTIME", value_enum)]
    runtime: Option<Engine>,

    /// The distribution of Kubernetes whose containerd it is, by which its files, socket and units are known: kubeadm, k3s,
    /// rke2, k0s, microk8s, eks, gke, aks, talos, bottlerocket, or auto for what the host shows (an addition of this program)
    #[arg(long, env = "GPU_PRESET", default_value = "auto", value_name = "NAME")]
    pub(super) preset: Distribution,

    /// Its main file, also set by `CONTAINERD_CONFIG` and `DOCKER_CONFIG` [default: the engine's own]
    #[arg(long, alias = "runtime-config", env = "RUNTIME_CONFIG", value_name = "PATH")]
    config: Option<String>,

    /// The drop-in to write [default: conf.d/99-nvidia.toml or crio.conf.d/99-nvidia.toml of the engine's folder]
    #[arg(long, env = "RUNTIME_DROP_IN_CONFIG", value_name = "PATH")]
    drop_in_config: Option<String>,

    /// Where the host has the drop-in, if it is elsewhere than here
    #[arg(long, env = "RUNTIME_DROP_IN_CONFIG_HOST_PATH", value_name = "PATH")]
    pub(super) drop_in_config_host_path: Option<PathBuf>,

    /// The program behind the engine, asked for its version [default: what listens on the socket]
    #[arg(long, env = "RUNTIME_EXECUTABLE_PATH", value_name = "PATH")]
    pub(super) executable_path: Option<PathBuf>,

    /// The version of containerd [default: asked of that program; where nobody tells it, what is written suits all
    /// versions, and a warning says so] (an addition of this program)
    #[arg(long, env = "GPU_CONTAINERD_VERSION", value_name = "VERSION")]
    pub(super) containerd_version: Option<Version>,

    /// Where the engine's settings are read from, also set by `RUNTIME_CONFIG_SOURCE`; `command` and `file` are always its
    /// files, merged as the engine does it, and so is `file=PATH`, which must be its main file
    #[arg(long, alias = "config-sources", env = "RUNTIME_CONFIG_SOURCES", value_name = "SOURCE",
          default_value_t = vendor::env_or("RUNTIME_CONFIG_SOURCE", "command,file"))]
    config_source: String,

    /// Its socket, also set by `CONTAINERD_SOCKET` and `DOCKER_SOCKET` [default: the engine's own]
    #[arg(long, env = "RUNTIME_SOCKET", value_name = "PATH")]
    socket: Option<String>,

    /// How it is made to read its files [default: signal; systemd for crio]
    #[arg(long, env = "RUNTIME_RESTART_MODE", value_enum)]
    pub(super) restart_mode: Option<RestartMode>,

    /// How long it may take until it answers again, in seconds (an addition of this program)
    #[arg(long, env = "GPU_RESTART_TIMEOUT", default_value_t = 60, value_name = "SECONDS")]
    pub(super) restart_timeout: u64,

    /// Whether the engine shall inject CDI devices [default: as `--cdi-enabled`]
    #[arg(long, env = "RUNTIME_ENABLE_CDI", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    enable_cdi_in_runtime: Option<bool>,

    /// Where the host's files are
    #[arg(long, env = "HOST_ROOT_MOUNT", default_value = "/host", value_name = "PATH")]
    pub(super) host_root: PathBuf,

    /// The name of the runtime, also set by `CONTAINERD_RUNTIME_CLASS` and `DOCKER_RUNTIME_NAME` [default: nvidia]
    #[arg(
        long,
        alias = "nvidia-runtime-name",
        alias = "runtime-class",
        env = "NVIDIA_RUNTIME_NAME",
        value_name = "NAME"
    )]
    runtime_name: Option<String>,

    /// Whether it is the runtime of containers that name none, also set by `CONTAINERD_SET_AS_DEFAULT` and
    /// `DOCKER_SET_AS_DEFAULT` [default: true]
    #[arg(long, env = "NVIDIA_RUNTIME_SET_AS_DEFAULT", value_parser = vendor::parse_bool, num_args = 0..=1,
          require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    set_as_default: Option<bool>,

    /// The root of the driver's files on the host
    #[arg(
        long,
        alias = "nvidia-driver-root",
        env = names::DRIVER_ROOT,
        default_value = "/run/nvidia/driver",
        value_name = "PATH"
    )]
    pub(super) driver_root: String,

    /// Where it is seen from here [default: /driver-root if it is there, else the driver root beneath the host's]
    #[arg(long, alias = "driver-root-path", env = "DRIVER_ROOT_CTR_PATH", value_name = "PATH")]
    driver_root_ctr_path: Option<PathBuf>,

    /// The root of the device nodes on the host [default: the driver root]
    #[arg(long, alias = "nvidia-dev-root", env = "NVIDIA_DEV_ROOT", value_name = "PATH")]
    dev_root: Option<String>,

    /// Where it is seen from here [default: as the driver root]
    #[arg(long, env = "DEV_ROOT_CTR_PATH", value_name = "PATH")]
    dev_root_ctr_path: Option<PathBuf>,

    /// Whether the node's GPUs are described for whoever reads CDI, and not for the installed runtime alone
    #[arg(long, alias = "enable-cdi", env = "CDI_ENABLED", value_parser = vendor::parse_bool, num_args = 0..=1,
          require_equals = true, default_value = "false", default_missing_value = "true", value_name = "BOOL")]
    pub(super) cdi_enabled: bool,

    /// Where CDI files are written, with `--cdi-enabled`
    #[arg(long, env = "CDI_OUTPUT_DIR", default_value = "/var/run/cdi", value_name = "PATH")]
    pub(super) cdi_output_dir: PathBuf,

    /// The kind of the device with every node, for programs that manage GPUs
    #[arg(
        long,
        env = "CDI_KIND",
        default_value = "management.nvidia.com/gpu",
        value_name = "KIND"
    )]
    pub(super) cdi_kind: gpu_cdi::Kind,

    /// Which device nodes are made if they are missing
    #[arg(
        long,
        env = "CREATE_DEVICE_NODES",
        value_delimiter = ',',
        value_enum,
        default_value = "control"
    )]
    create_device_nodes: Vec<DeviceNodes>,

    #[command(flatten)]
    pub(super) runtime_settings: RuntimeSettings,

    /// The NVML library; default: beneath the driver root, then the loader's search path (an addition of this program)
    #[arg(long, env = names::NVML_LIBRARY, value_name = "PATH")]
    pub(super) nvml_library: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DeviceNodes {
    /// nvidiactl, nvidia-modeset, nvidia-uvm, nvidia-uvm-tools, and nvidia-caps/* of the MIG instances that there are
    Control,
    None,
}

/// The vendor's settings that this program does not have, and the values with which it can do without.
pub(super) const UNSUPPORTED: &[vendor::Unsupported] = &[
    vendor::Unsupported {
        variable: "ENABLE_NRI_PLUGIN",
        harmless: vendor::FALSE,
    },
    vendor::Unsupported {
        variable: "CONTAINERD_USE_LEGACY_CONFIG",
        harmless: vendor::FALSE,
    },
    vendor::Unsupported {
        variable: "CONTAINERD_RUNTIME_TYPE",
        harmless: &["", "io.containerd.runc.v2"],
    },
    vendor::Unsupported {
        variable: "CRIO_CONFIG_MODE",
        harmless: &["", "config"],
    },
    vendor::Unsupported {
        variable: "NVIDIA_CONTAINER_TOOLKIT_OPT_IN_FEATURES",
        harmless: &[""],
    },
];

impl Arguments {
    /// Refuses settings that contradict each other or ask for what this program does not do.
    ///
    /// # Errors
    /// [`BadUsage`].
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let folders = [
            ("--toolkit-install-dir", Path::new(&self.toolkit_install_dir)),
            ("--driver-root", Path::new(&self.driver_root)),
            ("--dev-root", Path::new(self.dev_root_on_host())),
            ("--host-root", &self.host_root),
            ("--cdi-output-dir", &self.cdi_output_dir),
        ];
        for (flag, path) in folders {
            check_absolute(flag, path)?;
        }
        for source in self.config_source.split(',').map(str::trim) {
            let bad = || {
                BadUsage::new(format_args!(
                    "`--config-source`: the engine's settings cannot be read from `{source}`: they are read from its main \
                     file and what that imports"
                ))
            };
            ensure!(self.is_read(source), bad());
        }
        ensure!(
            self.runtime() == Engine::Containerd || self.preset == Distribution::Auto,
            BadUsage::new("`--preset` is for `--runtime=containerd`")
        );
        self.is_default().map(drop)
    }

    pub(super) fn runtime(&self) -> Engine {
        self.runtime.unwrap_or(match self.preset {
            Distribution::Auto => Engine::Docker,
            Distribution::Of(_) => Engine::Containerd,
        })
    }

    /// Whether a source of settings is the engine's main file, here or on the host.
    fn is_read(&self, source: &str) -> bool {
        let Some(path) = source.strip_prefix("file=") else {
            return matches!(source, "" | "command" | "file");
        };
        let main = self.main().unwrap_or_else(|| self.runtime().main().into());
        let on_host = |path: &Path| match path.strip_prefix(&self.host_root) {
            Ok(rest) => Path::new("/").join(rest),
            Err(_) => path.to_owned(),
        };
        on_host(Path::new(path)) == on_host(&main)
    }

    pub(super) fn pid_file(&self) -> &Path {
        Path::new(&self.pid_file)
    }

    /// Where the programs are installed, here and on the host.
    pub(super) fn folder(&self) -> PathBuf {
        Path::new(&self.toolkit_install_dir).join("toolkit")
    }

    /// Where the GPUs are described: for everybody where CDI is asked for, else for the installed runtime alone, which has
    /// devices from nowhere else. That folder is on the host under the same path, whatever is mounted.
    pub(super) fn specs(&self) -> PathBuf {
        if self.cdi_enabled {
            self.cdi_output_dir.clone()
        } else {
            self.folder().join(toolkit_config::BESIDE).join("cdi")
        }
    }

    /// What an older variable says where the newer one does not; each engine has its own.
    fn or_older(&self, value: Option<&String>, containerd: &str, docker: &str) -> Option<String> {
        let older = match self.runtime() {
            Engine::Containerd => vendor::env(containerd),
            Engine::Docker => vendor::env(docker),
            Engine::Crio => String::new(),
        };
        value
            .cloned()
            .into_iter()
            .chain([older])
            .find(|value| !value.is_empty())
    }

    pub(super) fn main(&self) -> Option<PathBuf> {
        self.or_older(self.config.as_ref(), "CONTAINERD_CONFIG", "DOCKER_CONFIG")
            .map(PathBuf::from)
    }

    pub(super) fn drop_in(&self) -> Option<PathBuf> {
        self.drop_in_config
            .clone()
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
    }

    pub(super) fn socket(&self) -> Option<PathBuf> {
        self.or_older(self.socket.as_ref(), "CONTAINERD_SOCKET", "DOCKER_SOCKET")
            .map(PathBuf::from)
    }

    pub(super) fn creates_control_nodes(&self) -> bool {
        self.create_device_nodes.contains(&DeviceNodes::Control)
    }

    pub(super) fn driver_root_here(&self) -> PathBuf {
        let usual = Path::new("/driver-root");
        match &self.driver_root_ctr_path {
            Some(path) if !path.as_os_str().is_empty() => path.clone(),
            _ if usual.is_dir() => usual.to_owned(),
            _ => self.host_root.join(self.driver_root.trim_start_matches('/')),
        }
    }

    pub(super) fn dev_root_here(&self) -> PathBuf {
        match &self.dev_root_ctr_path {
            Some(path) if !path.as_os_str().is_empty() => path.clone(),
            _ => match self.dev_root_on_host() {
                root if root == self.driver_root => self.driver_root_here(),
                root => self.host_root.join(root.trim_start_matches('/')),
            },
        }
    }

    pub(super) fn dev_root_on_host(&self) -> &str {
        match &self.dev_root {
            Some(root) if !root.is_empty() => root,
            _ => &self.driver_root,
        }
    }

    /// Whether the runtime is that of containers that name none; it is unless somebody says otherwise, as the vendor has it.
    fn is_default(&self) -> anyhow::Result<bool> {
        if let Some(given) = self.set_as_default {
            return Ok(given);
        }
        let variable = match self.runtime() {
            Engine::Containerd => "CONTAINERD_SET_AS_DEFAULT",
            Engine::Docker => "DOCKER_SET_AS_DEFAULT",
            Engine::Crio => return Ok(true),
        };
        match vendor::env(variable).as_str() {
            "" => Ok(true),
            text => vendor::parse_bool(text)
                .map_err(|error| anyhow!(BadUsage::new(format_args!("the variable `{variable}`: {error}")))),
        }
    }

    /// What is asked of the engine.
    ///
    /// # Errors
    /// [`BadUsage`], which [`check`](Self::check) tells first.
    pub(super) fn settings(&self) -> anyhow::Result<Settings> {
        let name = self.or_older(
            self.runtime_name.as_ref(),
            "CONTAINERD_RUNTIME_CLASS",
            "DOCKER_RUNTIME_NAME",
        );
        let name = name.unwrap_or_else(|| "nvidia".to_owned());
        let folder = self.folder();
        let mut settings = Settings::vendor(&folder.to_string_lossy(), &name, self.is_default()?);
        settings.cdi = self
            .enable_cdi_in_runtime
            .unwrap_or(self.cdi_enabled)
            .then(Cdi::default);
        if self.runtime() == Engine::Containerd {
            let prefixes = self.runtime_settings.annotation_prefixes();
            settings.container_annotations = prefixes.map(|prefix| format!("{prefix}*")).collect();
        }
        Ok(settings)
    }
}

#[cfg(test)]
impl Arguments {
    /// What these flags say.
    pub(super) fn of(flags: &[&str]) -> clap::error::Result<Self> {
        #[derive(Debug, clap::Parser)]
        struct Program {
            #[command(flatten)]
            arguments: Arguments,
        }
        let program: Program = clap::Parser::try_parse_from(["x"].iter().chain(flags))?;
        Ok(program.arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Arguments {
        Arguments::of(flags).unwrap()
    }

    #[test]
    fn three_runtimes_are_offered_as_the_vendor_does() {
        let settings = parse(&["--runtime=containerd", "--cdi-enabled", "--set-as-default=false"]);
        let settings = settings.settings().unwrap();
        let runtimes: Vec<_> = settings.runtimes.iter().map(|runtime| runtime.path.as_str()).collect();
        assert_eq!(
            runtimes,
            [
                "/usr/local/nvidia/toolkit/nvidia-container-runtime",
                "/usr/local/nvidia/toolkit/nvidia-container-runtime.cdi",
                "/usr/local/nvidia/toolkit/nvidia-container-runtime.legacy",
            ]
        );
        assert_eq!((settings.default_runtime, settings.cdi), (None, Some(Cdi::default())));
        let settings = parse(&[
            "--runtime-name=gpu",
            "--nvidia-container-runtime-modes.cdi.annotation-prefixes=a/",
        ])
        .settings()
        .unwrap();
        assert_eq!(settings.default_runtime.as_deref(), Some("gpu"));
        assert!(settings.container_annotations.is_empty(), "Docker has no such list");
    }

    #[test]
    fn roots_are_found_beneath_the_hosts() {
        let arguments = parse(&["--driver-root=/drv", "--dev-root=/", "--host-root=/host"]);
        assert_eq!(arguments.driver_root_here(), PathBuf::from("/host/drv"));
        assert_eq!(arguments.dev_root_here(), PathBuf::from("/host/"));
        let arguments = parse(&["--driver-root=/drv", "--driver-root-ctr-path=/d"]);
        assert_eq!(
            (arguments.dev_root_here(), arguments.dev_root_on_host()),
            (PathBuf::from("/d"), "/drv")
        );
    }

    #[test]
    fn what_is_not_supported_is_bad_usage() {
        for argument in ["--runtime=podman", "--restart-mode=kill", "--create-device-nodes=all"] {
            assert!(Arguments::of(&[argument]).is_err(), "{argument}");
        }
    }

    #[test]
    fn settings_are_read_from_the_engines_main_file() {
        #[track_caller]
        fn check(source: &str, expected: bool) {
            let arguments = parse(&["--runtime=containerd", "--host-root=/host", "--config=/c/config.toml"]);
            assert_eq!(arguments.is_read(source), expected, "{source}");
        }
        check("command", true);
        check("file", true);
        check("file=/c/config.toml", true);
        check("file=/host/c/config.toml", true);
        check("file=/x", false);
        check("url", false);
    }
}
