//! `gpu-device-plugin`: offers this node's GPUs to the kubelet, in the place of `nvidia-device-plugin`.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::Context;
use clap::{Parser, ValueEnum};
use gpu_plugin::{
    DeviceIdStrategy, DeviceListStrategy, HealthPolicy, NodeConfig, Sockets,
    gpu_cdi::DiscoverConfig,
    gpu_core::nvml::LibrarySearch,
    gpu_kubelet::names::KUBELET_SOCKET,
    names::{DISABLE_HEALTHCHECKS, ENABLE_HEALTHCHECKS},
};
use tokio::signal::unix::{SignalKind, signal};

use crate::{logging::Logging, program, vendor};

/// Offers the GPUs of this node to the kubelet as `nvidia.com/gpu`.
///
/// Flags and environment variables are those of nvidia-device-plugin v0.20. What of it is not supported is refused at the
/// start.
#[derive(Debug, Parser)]
#[command(name = "gpu-device-plugin", version)]
struct DevicePlugin {
    /// Whether a node without a working driver ends the program; if false, the driver is waited for
    #[arg(long, env = "FAIL_ON_INIT_ERROR", default_value = "true", value_name = "BOOL",
          value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    fail_on_init_error: bool,

    /// How containers are told their GPUs; several are joined by commas
    #[arg(
        long,
        env = "DEVICE_LIST_STRATEGY",
        default_value = "envvar",
        value_delimiter = ',',
        value_name = "STRATEGY"
    )]
    device_list_strategy: Vec<ListStrategy>,

    /// By which name containers are told their GPUs
    #[arg(long, env = "DEVICE_ID_STRATEGY", default_value = "uuid", value_name = "STRATEGY")]
    device_id_strategy: IdStrategy,

    /// The root of the driver's files on the host
    #[arg(
        long,
        alias = "nvidia-driver-root",
        env = "NVIDIA_DRIVER_ROOT",
        default_value = "/",
        value_name = "PATH"
    )]
    driver_root: String,

    /// The root of the device nodes on the host [default: the driver root]
    #[arg(
        long,
        alias = "nvidia-dev-root",
        env = "NVIDIA_DEV_ROOT",
        default_value = "",
        value_name = "PATH",
        hide_default_value = true
    )]
    dev_root: String,

    /// Where the driver root is seen from here, also set by `CONTAINER_DRIVER_ROOT` [default: /driver-root if it is there, else /]
    #[arg(long, alias = "container-driver-root", env = "DRIVER_ROOT_CTR_PATH", value_name = "PATH",
          default_value_t = vendor::env("CONTAINER_DRIVER_ROOT"), hide_default_value = true)]
    driver_root_ctr_path: String,

    /// The hook program on the host that CDI files name, also set by `NVIDIA_CTK_PATH`
    #[arg(long, alias = "nvidia-ctk-path", env = "NVIDIA_CDI_HOOK_PATH", value_name = "PATH",
          default_value_t = vendor::env_or("NVIDIA_CTK_PATH", "/usr/bin/nvidia-ctk"))]
    nvidia_cdi_hook_path: String,

    /// The kubelet's registration socket; the plugin's own lies beside it
    #[arg(long, env = "KUBELET_SOCKET", default_value = KUBELET_SOCKET, value_name = "PATH")]
    kubelet_socket: PathBuf,

    /// Where CDI files are written (an addition of this program)
    #[arg(long, env = "GPU_CDI_DIR", default_value = "/var/run/cdi", value_name = "PATH")]
    cdi_dir: PathBuf,

    /// The NVML library; default: beneath the driver root, then the loader's search path (an addition of this program)
    #[arg(long, env = "GPU_NVML_LIBRARY", value_name = "PATH")]
    nvml_library: Option<PathBuf>,

    /// Where the host's /sys is (an addition of this program)
    #[arg(long, env = "GPU_HOST_ROOT", default_value = "/", value_name = "PATH")]
    host_root: PathBuf,

    #[command(flatten)]
    logging: Logging,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ListStrategy {
    #[value(name = "envvar")]
    EnvVar,
    CdiCri,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum IdStrategy {
    Uuid,
    Index,
}

/// The vendor's settings that this program does not have, and the values with which it can do without.
const UNSUPPORTED: &[vendor::Unsupported] = &[
    vendor::Unsupported {
        variable: "CONFIG_FILE",
        harmless: &[""],
    },
    vendor::Unsupported {
        variable: "MIG_STRATEGY",
        harmless: &["", "none"],
    },
    vendor::Unsupported {
        variable: "PASS_DEVICE_SPECS",
        harmless: vendor::FALSE,
    },
    vendor::Unsupported {
        variable: "GDRCOPY_ENABLED",
        harmless: vendor::FALSE,
    },
    vendor::Unsupported {
        variable: "GDS_ENABLED",
        harmless: vendor::FALSE,
    },
    vendor::Unsupported {
        variable: "MOFED_ENABLED",
        harmless: vendor::FALSE,
    },
    vendor::Unsupported {
        variable: "DEVICE_DISCOVERY_STRATEGY",
        harmless: &["", "auto", "nvml"],
    },
    vendor::Unsupported {
        variable: "IMEX_CHANNEL_IDS",
        harmless: &["", "[]"],
    },
    vendor::Unsupported {
        variable: "IMEX_REQUIRED",
        harmless: vendor::FALSE,
    },
    vendor::Unsupported {
        variable: "CDI_FEATURE_FLAGS",
        harmless: &[""],
    },
    vendor::Unsupported {
        variable: "CDI_DISABLE_HOOKS",
        harmless: &[""],
    },
];

/// Runs `gpu-device-plugin` with these arguments, the program's name first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let plugin = DevicePlugin::parse_from(arguments);
    program::run(|| {
        plugin.logging.start()?;
        vendor::refuse(UNSUPPORTED)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let result = runtime.block_on(serve(&plugin));
        // A driver call that hangs must not keep the process from ending.
        runtime.shutdown_timeout(Duration::from_millis(100));
        result
    })
}

async fn serve(plugin: &DevicePlugin) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: ending"),
            _ = interrupt.recv() => tracing::info!("SIGINT: ending"),
        }
    };
    let sockets = Sockets {
        kubelet: plugin.kubelet_socket.clone(),
    };
    Ok(gpu_plugin::run(&plugin.config(), &sockets, stop).await?)
}

impl DevicePlugin {
    fn config(&self) -> NodeConfig {
        let root_here = self.driver_root_here();
        let mut driver_files = DiscoverConfig::new(&root_here).with_search_paths(
            std::env::var_os("PATH").as_deref(),
            std::env::var_os("XDG_DATA_DIRS").as_deref(),
        );
        // As upstream: a driver root without device nodes, as of a driver container, leaves them in the usual place.
        driver_files.dev_root = (!root_here.join("dev").is_dir()).then(|| PathBuf::from("/"));
        driver_files.sys_root.clone_from(&self.host_root);

        let (health, unknown) =
            HealthPolicy::new(&vendor::env(DISABLE_HEALTHCHECKS), &vendor::env(ENABLE_HEALTHCHECKS));
        for word in unknown {
            tracing::warn!("`{word}` in {DISABLE_HEALTHCHECKS} or {ENABLE_HEALTHCHECKS} is no Xid and has no effect");
        }
        let host_dev_root = if self.dev_root.is_empty() {
            &self.driver_root
        } else {
            &self.dev_root
        };
        NodeConfig {
            library: LibrarySearch {
                library: self.nvml_library.clone(),
                driver_root: Some(root_here),
            },
            host_root: self.host_root.clone(),
            lists: self
                .device_list_strategy
                .iter()
                .map(|strategy| (*strategy).into())
                .collect(),
            ids: self.device_id_strategy.into(),
            health,
            fail_on_init_error: self.fail_on_init_error,
            cdi_dir: self.cdi_dir.clone(),
            driver_files,
            host_driver_root: Some(self.driver_root.clone()),
            host_dev_root: Some(host_dev_root.clone()),
            hook_path: self.nvidia_cdi_hook_path.clone(),
            ..NodeConfig::default()
        }
    }

    fn driver_root_here(&self) -> PathBuf {
        let usual = Path::new("/driver-root");
        match self.driver_root_ctr_path.as_str() {
            "" if usual.is_dir() => usual.to_owned(),
            "" => PathBuf::from("/"),
            path => PathBuf::from(path),
        }
    }
}

impl From<ListStrategy> for DeviceListStrategy {
    fn from(strategy: ListStrategy) -> Self {
        match strategy {
            ListStrategy::EnvVar => Self::EnvVar,
            ListStrategy::CdiCri => Self::CdiCri,
        }
    }
}

impl From<IdStrategy> for DeviceIdStrategy {
    fn from(strategy: IdStrategy) -> Self {
        match strategy {
            IdStrategy::Uuid => Self::Uuid,
            IdStrategy::Index => Self::Index,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        DevicePlugin::command().debug_assert();
    }

    #[test]
    fn the_vendors_flags_are_understood() {
        #[track_caller]
        fn check(arguments: &[&str], expected: impl Fn(&NodeConfig) -> bool) {
            let plugin = DevicePlugin::try_parse_from(["gpu-device-plugin"].iter().chain(arguments)).unwrap();
            let config = plugin.config();
            assert!(expected(&config), "{config:#?}");
        }
        check(&["--device-list-strategy=envvar,cdi-cri"], |config| {
            config.lists == [DeviceListStrategy::EnvVar, DeviceListStrategy::CdiCri]
        });
        check(&["--fail-on-init-error=0"], |config| !config.fail_on_init_error);
        check(&["--fail-on-init-error"], |config| config.fail_on_init_error);
        check(&["--nvidia-driver-root=/run/nvidia/driver"], |config| {
            config.host_driver_root.as_deref() == Some("/run/nvidia/driver")
                && config.host_dev_root.as_deref() == Some("/run/nvidia/driver")
        });
        check(&["--driver-root=/run/nvidia/driver", "--dev-root=/"], |config| {
            config.host_dev_root.as_deref() == Some("/")
        });
        check(&["--nvidia-ctk-path=/opt/hook"], |config| {
            config.hook_path == "/opt/hook"
        });
    }

    #[test]
    fn what_is_not_supported_is_bad_usage() {
        for argument in [
            "--device-list-strategy=volume-mounts",
            "--mig-strategy=mixed",
            "--device-id-strategy=name",
        ] {
            assert!(
                DevicePlugin::try_parse_from(["gpu-device-plugin", argument]).is_err(),
                "{argument}"
            );
        }
    }
}
