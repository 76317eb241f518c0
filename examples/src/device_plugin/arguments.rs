//! The plugin's command line.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr,
};

use anyhow::ensure;
use clap::{Args, Command, CommandFactory, Parser};
use gpu_plugin::{
    GpuChoice, GpuRef, HealthPolicy, NodeConfig, ParseXidClassError, Sockets, XidClass,
    gpu_cdi::HookName,
    gpu_core::{
        nvml::LibrarySearch,
        ownership::{self, OwnerFile},
    },
    gpu_kubelet::names::KUBELET_SOCKET,
    names::{DISABLE_HEALTHCHECKS, ENABLE_HEALTHCHECKS},
};
use gpu_sharing::config::{
    AllocationPolicy, Config, DeviceIdStrategy, DeviceListStrategy, DiscoveryStrategy, Flags, Imex, Interval,
    MigStrategy, PluginFlags, Program,
};

use tokio::sync::watch;

use super::kubelet_folder;
#[cfg(all(feature = "config-manager", feature = "node-events"))]
use crate::{
    config_manager::{self, Selection},
    program::BadUsage,
};
use crate::{
    driver_files::driver_files,
    logging::Logging,
    names::{self, device_plugin as env},
    settings::{ConfigArguments, Settings},
    vendor,
};

/// Whose variables are read.
const PROGRAM: Program = Program::DevicePlugin;

/// Where manifests mount the driver root.
const USUAL_DRIVER_ROOT: &str = "/driver-root";

/// Offers the GPUs of this node to the kubelet as `nvidia.com/gpu` and the like.
///
/// Flags, environment variables and configuration file are those of nvidia-device-plugin v0.20; a flag beats its variable
/// (in brackets), which beats the file; a variable that is set and empty counts as not set. What of it is not supported is
/// refused at the start. SIGHUP has the file and the GPUs read again.
#[derive(Debug, Clone, Parser)]
#[command(name = "gpu-device-plugin", version)]
pub(super) struct DevicePlugin {
    #[command(flatten)]
    vendor: Vendor,

    #[command(flatten)]
    file: ConfigArguments,

    #[cfg(all(feature = "config-manager", feature = "node-events"))]
    #[command(flatten)]
    choice: ChoiceArguments,

    /// The kubelet's registration socket; the plugin's own lie beside it
    #[arg(long, env = env::KUBELET_SOCKET, default_value = KUBELET_SOCKET, value_name = "PATH", value_parser = parse_socket)]
    pub(super) kubelet_socket: PathBuf,

    /// Where the kubelet tells what it can hand out, by which a registration that it has lost is noticed; empty for nowhere (an
    /// addition of this program) [default: pod-resources/kubelet.sock beside the folder of the kubelet's socket]
    #[arg(long, env = env::POD_RESOURCES_SOCKET, value_name = "PATH", value_parser = any_path)]
    pod_resources_socket: Option<PathBuf>,

    /// Hooks to leave out of CDI files, joined by commas; `all` for every hook
    #[arg(long, env = env::CDI_DISABLE_HOOKS, default_value = "", value_name = "NAMES", hide_default_value = true,
          value_parser = HookName::parse_list)]
    cdi_disable_hooks: BTreeSet<HookName>,

    /// What CDI files have or have not, joined by commas: no-additional-gids-for-device-nodes, disable-ipc-discoverer;
    /// disable-nvsandboxutils and disable-multiple-csv-devices change nothing
    #[arg(long, env = env::CDI_FEATURE_FLAGS, value_name = "NAMES", value_delimiter = ',')]
    cdi_feature_flags: Vec<CdiFeature>,

    /// The GPUs to offer and no others, joined by commas: indices, UUIDs or PCI addresses (an addition of this program)
    #[arg(long, env = env::INCLUDE_GPUS, value_name = "GPUS", value_delimiter = ',')]
    include_gpus: Vec<GpuRef>,

    /// The GPUs not to offer, joined by commas (an addition of this program)
    #[arg(long, env = env::EXCLUDE_GPUS, value_name = "GPUS", value_delimiter = ',')]
    exclude_gpus: Vec<GpuRef>,

    /// What Xids say of their GPU, as in `94=application,48=fatal`: ignore, application, reset-required (unhealthy until it has
    /// been sound for a while) or fatal (and only after it was reset); beats `DP_DISABLE_HEALTHCHECKS` and `DP_ENABLE_HEALTHCHECKS`
    /// (an addition of this program)
    #[arg(long, env = env::XID_CLASSES, default_value = "", value_name = "XID=CLASS,…", hide_default_value = true)]
    xid_classes: XidClasses,

    /// How long a GPU must have been sound to be healthy again (an addition of this program)
    #[arg(long, env = env::HEALTH_QUIET_PERIOD, default_value = "60s", value_name = "TIME")]
    health_quiet_period: Interval,

    /// The file by which the programs of a node agree who offers which GPU; empty for none (an addition of this program)
    /// [default: /var/run/nvidia-gpu-owners.json beneath the host root]
    #[arg(long, env = env::OWNERS_FILE, value_name = "PATH", value_parser = any_path)]
    owners_file: Option<PathBuf>,

    /// Give the GPUs up in that file when the program ends (an addition of this program)
    #[arg(long, env = env::RELEASE_ON_EXIT, value_name = "BOOL", default_value = "false", value_parser = vendor::parse_bool,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) release_on_exit: bool,

    /// Answer /healthz, /readyz and /metrics at this address (an addition of this program)
    #[arg(long, env = names::LISTEN, value_name = "ADDRESS:PORT")]
    pub(super) listen: Option<SocketAddr>,

    /// Where CDI files are written (an addition of this program)
    #[arg(long, env = names::CDI_DIR, default_value = "/var/run/cdi", value_name = "PATH")]
    cdi_dir: PathBuf,

    /// Where the MPS root is seen from here (an addition of this program)
    #[arg(long, env = names::mps_daemon::ROOT, default_value = "/mps", value_name = "PATH")]
    mps_dir: PathBuf,

    /// The NVML library; default: beneath the driver root, then the loader's search path (an addition of this program)
    #[arg(long, env = names::NVML_LIBRARY, value_name = "PATH")]
    nvml_library: Option<PathBuf>,

    /// Where the host's /sys and /proc are (an addition of this program)
    #[arg(long, env = names::HOST_ROOT, default_value = "/", value_name = "PATH")]
    host_root: PathBuf,

    #[cfg(feature = "node-events")]
    #[command(flatten)]
    pub(super) cluster: ClusterArguments,

    #[command(flatten)]
    pub(super) logging: Logging,
}

/// By which the configuration file is one of several.
#[cfg(all(feature = "config-manager", feature = "node-events"))]
#[derive(Debug, Clone, Args)]
struct ChoiceArguments {
    /// The folder of several configuration files, of which a label of the node names one, in the place of `--config-file`; needs
    /// `--node-name` (an addition of this program)
    #[arg(long, env = "CONFIG_FILE_SRCDIR", value_name = "PATH")]
    config_file_srcdir: Option<PathBuf>,

    #[command(flatten)]
    selection: Selection,
}

/// Where Events of the node are sent.
#[cfg(feature = "node-events")]
#[derive(Debug, Clone, Args)]
pub(super) struct ClusterArguments {
    /// The name of this node: with it, GPUs that fall ill and recover are told as Events of the node (an addition of this
    /// program)
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub(super) node_name: Option<String>,

    /// The file that says where the API server is; in a pod it is known without (an addition of this program)
    #[arg(long, env = "KUBECONFIG", value_name = "PATH")]
    pub(super) kubeconfig: Option<PathBuf>,
}

/// Settings that may also be in the configuration file.
#[derive(Debug, Clone, Args)]
struct Vendor {
    /// What MIG devices are offered as: none, single or mixed [`MIG_STRATEGY`]
    #[arg(long, value_name = "STRATEGY")]
    mig_strategy: Option<MigStrategy>,

    /// Whether a node that cannot be read or offered, or a CDI file that cannot be written, ends the program at its start; if
    /// false, it is waited for; by default yes [`FAIL_ON_INIT_ERROR`]
    #[arg(long, value_name = "BOOL", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    fail_on_init_error: Option<bool>,

    /// Where plugin, MPS daemon and its clients meet on the host [`MPS_ROOT`]
    #[arg(long, value_name = "PATH")]
    mps_root: Option<String>,

    /// The root of the driver's files on the host; by default / [`NVIDIA_DRIVER_ROOT`]
    #[arg(long, alias = "nvidia-driver-root", value_name = "PATH")]
    driver_root: Option<String>,

    /// The root of the device nodes on the host; by default the driver root [`NVIDIA_DEV_ROOT`]
    #[arg(long, alias = "nvidia-dev-root", value_name = "PATH")]
    dev_root: Option<String>,

    /// Where the driver root is seen from here; by default /driver-root, or / if that is not there and the driver root is /
    /// [`DRIVER_ROOT_CTR_PATH`, `CONTAINER_DRIVER_ROOT`]
    #[arg(long, alias = "container-driver-root", value_name = "PATH")]
    driver_root_ctr_path: Option<String>,

    /// Whether containers get the devices of `GDRCopy` [`GDRCOPY_ENABLED`]
    #[arg(long, value_name = "BOOL", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    gdrcopy_enabled: Option<bool>,

    /// Whether containers get the devices of `GPUDirect` Storage [`GDS_ENABLED`]
    #[arg(long, value_name = "BOOL", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    gds_enabled: Option<bool>,

    /// Whether containers get the `InfiniBand` devices [`MOFED_ENABLED`]
    #[arg(long, value_name = "BOOL", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    mofed_enabled: Option<bool>,

    /// Where GPUs are looked for: auto, nvml or tegra, where the GPU of a Tegra machine is one device and needs no NVML; by default auto
    /// [`DEVICE_DISCOVERY_STRATEGY`]
    #[arg(long, value_name = "STRATEGY")]
    device_discovery_strategy: Option<DiscoveryStrategy>,

    /// Whether answers list device nodes too, for the kubelet's CPU manager [`PASS_DEVICE_SPECS`]
    #[arg(long, value_name = "BOOL", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pass_device_specs: Option<bool>,

    /// How containers are told their GPUs, several joined by commas: envvar, volume-mounts, cdi-annotations, cdi-cri; by
    /// default envvar [`DEVICE_LIST_STRATEGY`]
    #[arg(long, value_delimiter = ',', value_name = "STRATEGY")]
    device_list_strategy: Option<Vec<DeviceListStrategy>>,

    /// By which name containers are told their GPUs: uuid or index; by default uuid [`DEVICE_ID_STRATEGY`]
    #[arg(long, value_name = "STRATEGY")]
    device_id_strategy: Option<DeviceIdStrategy>,

    /// What the key of a CDI annotation begins with; by default cdi.k8s.io/ [`CDI_ANNOTATION_PREFIX`]
    #[arg(long, value_name = "PREFIX")]
    cdi_annotation_prefix: Option<String>,

    /// The hook program on the host that CDI files name; by default /usr/bin/nvidia-ctk [`NVIDIA_CDI_HOOK_PATH`,
    /// `NVIDIA_CTK_PATH`]
    #[arg(long, alias = "nvidia-ctk-path", value_name = "PATH")]
    nvidia_cdi_hook_path: Option<String>,

    /// How replicas lie on GPUs: distributed or packed; by default distributed [`SHARED_DEVICES_ALLOCATION_POLICY`]
    #[arg(long, value_name = "POLICY")]
    shared_devices_allocation_policy: Option<AllocationPolicy>,

    /// IMEX channels that every container gets: 0 or none [`IMEX_CHANNEL_IDS`]
    #[arg(long, value_name = "CHANNELS", value_parser = ImexChannels::from_str)]
    imex_channel_ids: Option<ImexChannels>,

    /// Whether a channel that is missing is an error [`IMEX_REQUIRED`]
    #[arg(long, value_name = "BOOL", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    imex_required: Option<bool>,
}

/// The vendor's names of what CDI files have or have not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CdiFeature {
    NoAdditionalGids,
    NoIpcSockets,
    /// Of a library or a platform that is not used here in any case.
    OfNoUse,
}

impl FromStr for CdiFeature {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "no-additional-gids-for-device-nodes" => Ok(Self::NoAdditionalGids),
            "disable-ipc-discoverer" => Ok(Self::NoIpcSockets),
            "" | "disable-nvsandboxutils" | "disable-multiple-csv-devices" => Ok(Self::OfNoUse),
            _ => Err("it is not supported by this program"),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ImexChannels(Vec<u32>);

impl FromStr for ImexChannels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Imex::parse_channels(text).map(Self)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct XidClasses(BTreeMap<u64, XidClass>);

impl FromStr for XidClasses {
    type Err = ParseXidClassError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        HealthPolicy::parse_classes(text).map(Self)
    }
}

/// Also an empty one.
#[expect(clippy::unnecessary_wraps, reason = "a parser of clap's returns a result")]
fn any_path(text: &str) -> Result<PathBuf, Infallible> {
    Ok(text.into())
}

fn parse_socket(text: &str) -> Result<PathBuf, &'static str> {
    match text {
        "" => Err("a plugin that never registers is not supported"),
        path => Ok(path.into()),
    }
}

/// The command line for the parser.
pub(super) fn command() -> Command {
    DevicePlugin::command()
}

impl DevicePlugin {
    /// The configuration files of which a label of the node names one, now and when that changes; `None` where there is one file or
    /// none. In a tokio runtime.
    #[cfg(all(feature = "config-manager", feature = "node-events"))]
    pub(super) async fn chosen_file(&self) -> anyhow::Result<Option<watch::Receiver<Option<PathBuf>>>> {
        let Some(folder) = self.choice.config_file_srcdir.clone() else {
            return Ok(None);
        };
        let Some(node) = &self.cluster.node_name else {
            anyhow::bail!(BadUsage::new(
                "CONFIG_FILE_SRCDIR needs the name of the node (NODE_NAME)"
            ));
        };
        if self.file.is_given() {
            anyhow::bail!(BadUsage::new(
                "CONFIG_FILE_SRCDIR and CONFIG_FILE are not meant together"
            ));
        }
        let kubeconfig = self.cluster.kubeconfig.as_deref();
        let chosen = config_manager::follow(node, kubeconfig, self.choice.selection.clone(), folder).await?;
        Ok(Some(chosen))
    }

    #[cfg(not(all(feature = "config-manager", feature = "node-events")))]
    #[expect(clippy::unused_async, reason = "with the label it is")]
    pub(super) async fn chosen_file(&self) -> anyhow::Result<Option<watch::Receiver<Option<PathBuf>>>> {
        Ok(None)
    }

    /// The same with this configuration file.
    pub(super) fn with_file(&self, path: &Path) -> anyhow::Result<Self> {
        let mut other = self.clone();
        other.file = other.file.at(path)?;
        Ok(other)
    }

    /// What the file, the environment and the flags mean together.
    pub(super) fn settings(&self) -> anyhow::Result<Settings> {
        self.file.settings(PROGRAM, self.vendor.flags())
    }

    /// The configuration file's text.
    pub(super) fn config_text(&self) -> anyhow::Result<Option<String>> {
        self.file.text(PROGRAM)
    }

    /// How the node is offered with these settings.
    pub(super) fn node_config(&self, config: &Config) -> anyhow::Result<NodeConfig> {
        let root_here = driver_root_here(config, Path::new(USUAL_DRIVER_ROOT))?;
        let feature = |wanted| self.cdi_feature_flags.contains(&wanted);
        Ok(NodeConfig {
            config: config.clone(),
            choice: GpuChoice {
                include: self.include_gpus.clone(),
                exclude: self.exclude_gpus.clone(),
            },
            library: LibrarySearch {
                library: self.nvml_library.clone(),
                driver_root: Some(root_here.clone()),
            },
            host_root: self.host_root.clone(),
            health: self.health_policy(),
            cdi_dir: self.cdi_dir.clone(),
            driver_files: driver_files(&root_here, &self.host_root),
            disabled_hooks: self.cdi_disable_hooks.clone(),
            additional_gids: !feature(CdiFeature::NoAdditionalGids),
            ipc_sockets: !feature(CdiFeature::NoIpcSockets),
            mps_root: self.mps_dir.clone(),
            owners: self.owners(),
        })
    }

    fn health_policy(&self) -> HealthPolicy {
        let (policy, unknown) =
            HealthPolicy::new(&vendor::env(DISABLE_HEALTHCHECKS), &vendor::env(ENABLE_HEALTHCHECKS));
        for word in unknown {
            tracing::warn!("`{word}` in {DISABLE_HEALTHCHECKS} or {ENABLE_HEALTHCHECKS} is no Xid and has no effect");
        }
        let mut policy = policy.with_classes(self.xid_classes.0.clone());
        policy.quiet = match self.health_quiet_period {
            Interval::Every(time) => time,
            Interval::Infinite => std::time::Duration::MAX,
        };
        policy
    }

    /// Where plugins serve and register.
    pub(super) fn sockets(&self) -> Sockets {
        let usual = || Some(kubelet_folder(&self.kubelet_socket)?.join("pod-resources/kubelet.sock"));
        let given = self.pod_resources_socket.clone();
        Sockets {
            kubelet: self.kubelet_socket.clone(),
            pod_resources: given.or_else(usual).filter(|path| !path.as_os_str().is_empty()),
        }
    }

    fn owners(&self) -> Option<OwnerFile> {
        let usual = || self.host_root.join(ownership::FILE);
        let path = self.owners_file.clone().unwrap_or_else(usual);
        let file = (!path.as_os_str().is_empty()).then(|| OwnerFile::new(path))?;
        match kubelet_folder(&self.kubelet_socket) {
            Some(folder) => Some(file.kubelet(folder)),
            None => Some(file),
        }
    }
}

/// Where the driver root is seen from here. A driver in another root than `/` that is not mounted must not be mistaken for one
/// in `/`.
pub(super) fn driver_root_here(config: &Config, usual: &Path) -> anyhow::Result<PathBuf> {
    let here = match config.plugin.container_driver_root.as_str() {
        "" | USUAL_DRIVER_ROOT => usual,
        path => Path::new(path),
    };
    if here == usual && !here.is_dir() && config.nvidia_driver_root == "/" {
        return Ok(PathBuf::from("/"));
    }
    ensure!(
        here.is_dir(),
        "the driver root `{}` of the host is not seen here: there is no folder `{}`; mount it there, or set \
         DRIVER_ROOT_CTR_PATH to where it is",
        config.nvidia_driver_root,
        here.display(),
    );
    Ok(here.to_owned())
}

impl Vendor {
    fn flags(&self) -> Flags {
        Flags {
            mig_strategy: self.mig_strategy,
            fail_on_init_error: self.fail_on_init_error,
            mps_root: self.mps_root.clone(),
            nvidia_driver_root: self.driver_root.clone(),
            nvidia_dev_root: self.dev_root.clone(),
            gdrcopy_enabled: self.gdrcopy_enabled,
            gds_enabled: self.gds_enabled,
            mofed_enabled: self.mofed_enabled,
            device_discovery_strategy: self.device_discovery_strategy,
            plugin: PluginFlags {
                pass_device_specs: self.pass_device_specs,
                device_list_strategy: self.device_list_strategy.clone(),
                device_id_strategy: self.device_id_strategy,
                cdi_annotation_prefix: self.cdi_annotation_prefix.clone(),
                nvidia_ctk_path: self.nvidia_cdi_hook_path.clone(),
                container_driver_root: self.driver_root_ctr_path.clone(),
                shared_devices_allocation_policy: self.shared_devices_allocation_policy,
            },
            imex_channel_ids: self.imex_channel_ids.clone().map(|channels| channels.0),
            imex_required: self.imex_required,
            ..Flags::default()
        }
    }
}
