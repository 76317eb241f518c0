//! `gpu-mig-manager`: gives this node the MIG configuration that its label names, in the place of `nvidia-mig-manager`.

use std::{
    ffi::OsString,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use clap::{Args, Parser};

use crate::{executor, hardware::Hardware, logging::Logging, names, program, vendor};

mod attempt;
mod cdi;
mod claim;
mod cluster;
mod config;
mod daemon;
mod pause;
mod services;
mod users;

/// Gives this node the MIG configuration that its label `nvidia.com/mig.config` names.
///
/// Flags and environment variables are those of nvidia-mig-manager v0.15.
#[derive(Debug, Clone, Parser)]
#[command(name = "gpu-mig-manager", version)]
struct MigManager {
    /// The file that says where the API server is; in a pod it is known without
    #[arg(long, env = "KUBECONFIG", value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    /// The name of this node
    #[arg(short, long, env = "NODE_NAME", value_name = "NAME")]
    node_name: String,

    /// The file of configurations; default: one that is made from the GPUs of this node
    #[arg(short = 'f', long, env = "CONFIG_FILE", value_name = "PATH")]
    config_file: Option<PathBuf>,

    /// The file of configurations where the driver does not tell what GPUs can be divided into
    #[arg(long, env = "DEFAULT_CONFIG_FILE", value_name = "PATH")]
    default_config_file: Option<PathBuf>,

    /// Where the generated file is kept, within this container
    #[arg(
        long,
        env = "GPU_MIG_GENERATED_CONFIG",
        value_name = "PATH",
        default_value = "/etc/nvidia-mig-manager/generated-config.yaml"
    )]
    generated_config_file: PathBuf,

    /// The host's root, as seen from here
    #[arg(
        short = 'm',
        long,
        env = "HOST_ROOT_MOUNT",
        default_value = "/host",
        value_name = "PATH"
    )]
    host_root_mount: PathBuf,

    /// The systemd drop-in of the host's own MIG manager, which is told the configuration if it exists
    #[arg(
        short = 'o',
        long,
        env = "HOST_MIG_MANAGER_STATE_FILE",
        value_name = "PATH",
        default_value = "/etc/systemd/system/nvidia-mig-manager.service.d/override.conf"
    )]
    host_mig_manager_state_file: PathBuf,

    /// The kubelet's systemd unit, stopped with the host's GPU clients for a change of MIG mode
    #[arg(
        short = 'k',
        long,
        env = "HOST_KUBELET_SYSTEMD_SERVICE",
        default_value = "kubelet.service",
        value_name = "UNIT"
    )]
    host_kubelet_systemd_service: String,

    /// The file that names the host's services that use GPUs
    #[arg(short, long, env = "GPU_CLIENTS_FILE", value_name = "PATH")]
    gpu_clients_file: Option<PathBuf>,

    /// Reboots the host where MIG mode changes with a reset that cannot be done
    #[arg(short = 'r', long, env = "WITH_REBOOT", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_value = "false", default_missing_value = "true")]
    with_reboot: bool,

    /// Stops the host's services that use GPUs while GPUs are divided
    #[arg(short = 'd', long, env = "WITH_SHUTDOWN_HOST_GPU_CLIENTS", value_parser = vendor::parse_bool, num_args = 0..=1,
          require_equals = true, default_value = "false", default_missing_value = "true")]
    with_shutdown_host_gpu_clients: bool,

    /// The namespace of the programs that use GPUs and wait
    #[arg(
        short = 'p',
        long,
        env = "DEFAULT_GPU_CLIENTS_NAMESPACE",
        default_value = "default",
        value_name = "NAME"
    )]
    default_gpu_clients_namespace: String,

    /// The driver's root on the host
    #[arg(
        short = 't',
        long,
        env = names::DRIVER_ROOT,
        default_value = "/run/nvidia/driver",
        value_name = "PATH"
    )]
    driver_root: PathBuf,

    /// Where the driver's root is seen from here
    #[arg(
        short = 'a',
        long,
        env = "DRIVER_ROOT_CTR_PATH",
        default_value = "/run/nvidia/driver",
        value_name = "PATH"
    )]
    driver_root_ctr_path: PathBuf,

    /// The root of the device nodes on the host; default: the driver's root
    #[arg(short = 'b', long, env = "NVIDIA_DEV_ROOT", value_name = "PATH")]
    dev_root: Option<PathBuf>,

    /// Where the root of the device nodes is seen from here
    #[arg(short = 'j', long, env = "DEV_ROOT_CTR_PATH", value_name = "PATH")]
    dev_root_ctr_path: Option<PathBuf>,

    /// Writes the CDI file by which containers manage GPUs after each change
    #[arg(long, env = "CDI_ENABLED", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_value = "false", default_missing_value = "true")]
    cdi_enabled: bool,

    /// The hook program that the CDI file names
    #[arg(
        long,
        env = "NVIDIA_CDI_HOOK_PATH",
        default_value = "/usr/local/nvidia/toolkit/nvidia-cdi-hook",
        value_name = "PATH"
    )]
    nvidia_cdi_hook_path: PathBuf,

    /// The name of this program's pod
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pod_name: Option<String>,

    /// Its namespace, in which the generated file is kept as a `ConfigMap`
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME")]
    pod_namespace: Option<String>,

    #[command(flatten)]
    ours: Ours,

    #[command(flatten)]
    logging: Logging,
}

/// Additions to the vendor's.
#[derive(Debug, Clone, Args)]
struct Ours {
    /// Evicts pods that use instances which have to go; without it they are named in an event, and the state is `failed`
    /// (an addition of this program)
    #[arg(long, env = "GPU_MIG_EVICT_PODS", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_value = "false", default_missing_value = "true")]
    evict_pods: bool,

    /// How long the programs that use GPUs may take to go, in seconds (an addition of this program)
    #[arg(long, env = "GPU_MIG_PAUSE_SECONDS", default_value_t = 300, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pause_seconds: u64,

    /// How long the driver may take for a change, in seconds; who waits goes on after that (an addition of this program)
    #[arg(long, env = "GPU_MIG_CHANGE_SECONDS", default_value_t = 900, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    change_seconds: u64,

    /// The NVML library; default: beneath the driver root, then the loader's search path (an addition of this program)
    #[arg(long, env = names::NVML_LIBRARY, value_name = "PATH")]
    nvml_library: Option<PathBuf>,
}

impl MigManager {
    /// Where the driver and the host are, as seen from here.
    fn hardware(&self) -> Hardware {
        let root = &self.driver_root_ctr_path;
        Hardware {
            nvml_library: self.ours.nvml_library.clone(),
            driver_root: if root.is_dir() {
                root.clone()
            } else {
                PathBuf::from("/")
            },
            host_root: self.host_root_mount.clone(),
        }
    }

    /// A path of the host, as seen from here.
    fn on_host(&self, path: &std::path::Path) -> PathBuf {
        self.host_root_mount.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// By what name it makes others wait.
    fn owner(&self) -> String {
        self.pod_name.clone().unwrap_or_else(|| self.node_name.clone())
    }

    fn pause_limit(&self) -> Duration {
        Duration::from_secs(self.ours.pause_seconds)
    }

    fn change_limit(&self) -> Duration {
        Duration::from_secs(self.ours.change_seconds)
    }

    /// When whoever waits goes on at the latest: seconds since 1970.
    fn deadline(&self, now: u64) -> u64 {
        now + self.ours.pause_seconds + self.ours.change_seconds
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Away from the thread that must not wait: a driver may hang, and so may systemd.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> anyhow::Result<T> + Send + 'static) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .context("a thread did not come to its end")?
}

/// Runs `gpu-mig-manager` with these arguments, the program's name first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let manager: MigManager = program::parse(arguments);
    program::run(|| {
        manager.logging.start()?;
        executor::run(daemon::run(manager))
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_well_formed() {
        MigManager::command().debug_assert();
    }
}
