//! `gpu-device-plugin`: offers this node's GPUs to the kubelet, in the place of `nvidia-device-plugin`.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, ensure};
use clap::{Command, CommandFactory, Parser, ValueEnum};
use gpu_plugin::{
    DeviceIdStrategy, DeviceListStrategy, HealthPolicy, NodeConfig, Sockets,
    gpu_cdi::HookName,
    gpu_core::nvml::LibrarySearch,
    gpu_kubelet::names::KUBELET_SOCKET,
    names::{DISABLE_HEALTHCHECKS, ENABLE_HEALTHCHECKS},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Notify,
};

use crate::{
    driver_files::driver_files,
    logging::Logging,
    names::{self, device_plugin as env},
    program,
    stop::{self, StopSignals},
    vendor,
};

/// Offers the GPUs of this node to the kubelet as `nvidia.com/gpu`.
///
/// Flags and environment variables are those of nvidia-device-plugin v0.20; a variable that is set and empty counts as not
/// set. What of it is not supported is refused at the start. SIGHUP has the GPUs read again.
#[derive(Debug, Parser)]
#[command(name = "gpu-device-plugin", version)]
struct DevicePlugin {
    /// Whether a node that cannot be read, or a CDI file that cannot be written, ends the program; if false, it is waited for
    #[arg(long, env = env::FAIL_ON_INIT_ERROR, default_value = "true", value_name = "BOOL",
          value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    fail_on_init_error: bool,

    /// How containers are told their GPUs; several are joined by commas
    #[arg(
        long,
        env = env::DEVICE_LIST_STRATEGY,
        default_value = "envvar",
        value_delimiter = ',',
        value_name = "STRATEGY"
    )]
    device_list_strategy: Vec<ListStrategy>,

    /// By which name containers are told their GPUs
    #[arg(long, env = env::DEVICE_ID_STRATEGY, default_value = "uuid", value_name = "STRATEGY")]
    device_id_strategy: IdStrategy,

    /// The root of the driver's files on the host
    #[arg(
        long,
        alias = "nvidia-driver-root",
        env = names::DRIVER_ROOT,
        default_value = "/",
        value_name = "PATH"
    )]
    driver_root: String,

    /// The root of the device nodes on the host [default: the driver root]
    #[arg(
        long,
        alias = "nvidia-dev-root",
        env = env::DEV_ROOT,
        default_value = "",
        value_name = "PATH",
        hide_default_value = true
    )]
    dev_root: String,

    /// Where the driver root is seen from here, also set by `CONTAINER_DRIVER_ROOT` [default: /driver-root; / if that is not
    /// there and the driver root is /]
    #[arg(long, alias = "container-driver-root", env = env::DRIVER_ROOT_CTR_PATH, value_name = "PATH",
          default_value_t = vendor::env(env::CONTAINER_DRIVER_ROOT), hide_default_value = true)]
    driver_root_ctr_path: String,

    /// The hook program on the host that CDI files name, also set by `NVIDIA_CTK_PATH`
    #[arg(long, alias = "nvidia-ctk-path", env = env::CDI_HOOK_PATH, value_name = "PATH",
          default_value_t = vendor::env_or(env::CTK_PATH, "/usr/bin/nvidia-ctk"))]
    nvidia_cdi_hook_path: String,

    /// Hooks to leave out of CDI files, joined by commas; `all` for every hook
    #[arg(long, env = env::CDI_DISABLE_HOOKS, default_value = "", value_name = "NAMES", hide_default_value = true,
          value_parser = HookName::parse_list)]
    cdi_disable_hooks: BTreeSet<HookName>,

    /// The kubelet's registration socket; the plugin's own lies beside it
    #[arg(long, env = env::KUBELET_SOCKET, default_value = KUBELET_SOCKET, value_name = "PATH", value_parser = parse_socket)]
    kubelet_socket: PathBuf,

    /// Where CDI files are written (an addition of this program)
    #[arg(long, env = names::CDI_DIR, default_value = "/var/run/cdi", value_name = "PATH")]
    cdi_dir: PathBuf,

    /// The NVML library; default: beneath the driver root, then the loader's search path (an addition of this program)
    #[arg(long, env = names::NVML_LIBRARY, value_name = "PATH")]
    nvml_library: Option<PathBuf>,

    /// Where the host's /sys is (an addition of this program)
    #[arg(long, env = names::HOST_ROOT, default_value = "/", value_name = "PATH")]
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
    unsupported("CONFIG_FILE", &["", "/dev/null"]),
    unsupported("MIG_STRATEGY", &["", "none"]),
    unsupported("PASS_DEVICE_SPECS", vendor::FALSE),
    unsupported("GDRCOPY_ENABLED", vendor::FALSE),
    unsupported("GDS_ENABLED", vendor::FALSE),
    unsupported("MOFED_ENABLED", vendor::FALSE),
    unsupported("DEVICE_DISCOVERY_STRATEGY", &["", "auto", "nvml"]),
    unsupported("IMEX_CHANNEL_IDS", &["", "[]"]),
    unsupported("IMEX_REQUIRED", vendor::FALSE),
    // This library is not used in any case.
    unsupported("CDI_FEATURE_FLAGS", &["", "disable-nvsandboxutils"]),
    // Of use to sharing alone, which is asked for in a configuration file.
    unsupported("MPS_ROOT", vendor::Unsupported::ANY),
    unsupported("SHARED_DEVICES_ALLOCATION_POLICY", &["", "distributed", "packed"]),
    // Of use to a list strategy alone that is refused.
    unsupported("CDI_ANNOTATION_PREFIX", vendor::Unsupported::ANY),
];

/// The vendor's plugin takes it for "never register".
const MEANT_EMPTY: &[&str] = &[env::KUBELET_SOCKET];

fn parse_socket(text: &str) -> Result<PathBuf, &'static str> {
    match text {
        "" => Err("a plugin that never registers is not supported"),
        path => Ok(path.into()),
    }
}

const fn unsupported(variable: &'static str, harmless: &'static [&'static str]) -> vendor::Unsupported {
    vendor::Unsupported { variable, harmless }
}

/// Runs `gpu-device-plugin` with these arguments, the program's name first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let plugin: DevicePlugin = program::parse_with(command(), MEANT_EMPTY, arguments);
    program::run(|| {
        plugin.logging.start()?;
        let config = plugin.config()?;
        stop::end_in_time()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let result = runtime.block_on(serve(&config, plugin.kubelet_socket));
        // A driver call that hangs must not keep the process from ending.
        runtime.shutdown_timeout(Duration::from_millis(100));
        result
    })
}

fn command() -> Command {
    vendor::understand(DevicePlugin::command(), UNSUPPORTED)
}

async fn serve(config: &NodeConfig, kubelet: PathBuf) -> anyhow::Result<()> {
    let mut signals = StopSignals::new()?;
    let mut hang_up = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
    let reload = Notify::new();
    let stop = async {
        let reloads = async {
            while hang_up.recv().await.is_some() {
                reload.notify_one();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            signal = signals.recv() => tracing::info!("{signal}: ending"),
            () = reloads => {}
        }
    };
    Ok(gpu_plugin::run(config, &Sockets { kubelet }, &reload, stop).await?)
}

impl DevicePlugin {
    fn config(&self) -> anyhow::Result<NodeConfig> {
        let root_here = self.driver_root_here(Path::new("/driver-root"))?;

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
        Ok(NodeConfig {
            library: LibrarySearch {
                library: self.nvml_library.clone(),
                driver_root: Some(root_here.clone()),
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
            driver_files: driver_files(&root_here, &self.host_root),
            host_driver_root: Some(self.driver_root.clone()),
            host_dev_root: Some(host_dev_root.clone()),
            hook_path: self.nvidia_cdi_hook_path.clone(),
            disabled_hooks: self.cdi_disable_hooks.clone(),
            ..NodeConfig::default()
        })
    }

    /// `usual` is where manifests mount the driver root. A driver in another root than `/` that is not mounted must not be
    /// mistaken for one in `/`.
    fn driver_root_here(&self, usual: &Path) -> anyhow::Result<PathBuf> {
        let here = match self.driver_root_ctr_path.as_str() {
            "" => usual,
            path => Path::new(path),
        };
        if here == usual && !here.is_dir() && self.driver_root == "/" {
            return Ok(PathBuf::from("/"));
        }
        ensure!(
            here.is_dir(),
            "the driver root `{}` of the host is not seen here: there is no folder `{}`; mount it there, or set {} to where it is",
            self.driver_root,
            here.display(),
            env::DRIVER_ROOT_CTR_PATH,
        );
        Ok(here.to_owned())
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
    use super::*;

    fn parse(arguments: &[&str]) -> Result<DevicePlugin, clap::Error> {
        let matches = command().try_get_matches_from(["gpu-device-plugin"].iter().chain(arguments))?;
        clap::FromArgMatches::from_arg_matches(&matches)
    }

    #[test]
    fn the_arguments_are_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn the_vendors_flags_are_understood() {
        #[track_caller]
        fn check(arguments: &[&str], expected: impl Fn(&NodeConfig) -> bool) {
            let arguments = [arguments, &["--driver-root-ctr-path=/"]].concat();
            let config = parse(&arguments).unwrap().config().unwrap();
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
        check(&["--cdi-disable-hooks=chmod,update-ldcache"], |config| {
            config.disabled_hooks == [HookName::UpdateLdcache, HookName::Chmod].into()
        });
        check(&["--cdi-disable-hooks=all"], |config| config.disabled_hooks.len() == 6);
        check(&[], |config| config.disabled_hooks.is_empty());
    }

    #[test]
    fn what_asks_for_nothing_is_understood_and_what_is_not_supported_is_bad_usage() {
        for (harmless, harmful) in [
            ("--mig-strategy=none", "--mig-strategy=mixed"),
            ("--config-file=", "--config-file=/config.yaml"),
            ("--pass-device-specs=false", "--pass-device-specs"),
            ("--gds-enabled=0", "--gds-enabled=true"),
            ("--gdrcopy-enabled=F", "--gdrcopy-enabled=maybe"),
            ("--mofed-enabled=false", "--mofed-enabled=1"),
            ("--device-discovery-strategy=auto", "--device-discovery-strategy=tegra"),
            ("--imex-channel-ids=", "--imex-channel-ids=0"),
            ("--imex-required=false", "--imex-required"),
            (
                "--shared-devices-allocation-policy=packed",
                "--shared-devices-allocation-policy=best",
            ),
            ("--mps-root=/run/nvidia/mps", "--device-list-strategy=volume-mounts"),
            (
                "--cdi-annotation-prefix=cdi.k8s.io/",
                "--device-list-strategy=cdi-annotations",
            ),
            (
                "--cdi-feature-flags=",
                "--cdi-feature-flags=enable-coherent-annotations",
            ),
            ("--device-id-strategy=uuid", "--device-id-strategy=name"),
            ("--cdi-disable-hooks=", "--cdi-disable-hooks=unheard-of"),
            ("--kubelet-socket=/a/b", "--kubelet-socket="),
        ] {
            parse(&[harmless]).unwrap();
            let error = parse(&[harmful]).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{harmful}");
        }
    }

    #[test]
    fn the_root_is_taken_for_the_driver_root_only_where_it_is() {
        #[track_caller]
        fn check(arguments: &[&str], usual: &Path, expected: Result<&Path, &str>) {
            let here = parse(arguments).unwrap().driver_root_here(usual);
            match (here, expected) {
                (Ok(here), Ok(expected)) => assert_eq!(here, expected),
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
                (here, expected) => panic!("{here:?}, and expected is {expected:?}"),
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let (there, absent) = (dir.path(), dir.path().join("absent"));
        let (root, named) = (Path::new("/"), absent.to_str().unwrap());
        check(&[], there, Ok(there));
        check(&[], &absent, Ok(root));
        check(&["--driver-root=/run/nvidia/driver"], there, Ok(there));
        check(
            &["--driver-root=/run/nvidia/driver"],
            &absent,
            Err("`/run/nvidia/driver`"),
        );
        check(&["--driver-root=/run/nvidia/driver"], &absent, Err(named));
        check(&["--driver-root-ctr-path", named], &absent, Ok(root)); // as manifests have it for a driver in `/`
        check(&["--driver-root-ctr-path", named], there, Err(named));
        check(
            &["--driver-root-ctr-path=/", "--driver-root=/run/nvidia/driver"],
            &absent,
            Ok(root),
        );
    }
}
