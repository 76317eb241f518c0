//! The plugin's command line.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::{Command, CommandFactory, Parser};
use gpu_plugin::{
    GpuRef, HealthPolicy, ParseXidClassError, XidClass, gpu_cdi::HookName, gpu_kubelet::names::KUBELET_SOCKET,
};
use gpu_sharing::config::{Interval, Program};

#[cfg(all(feature = "config-manager", feature = "node-events"))]
use self::cluster::ChoiceArguments;
#[cfg(feature = "node-events")]
use self::cluster::ClusterArguments;
use self::vendor::VendorArguments;
use crate::{
    cdi_feature::CdiFeature,
    logging::Logging,
    names::{self, device_plugin as env},
    settings::{ConfigArguments, Settings},
    vendor::parse_bool,
};

mod cluster;
pub(super) mod meaning;
mod vendor;

/// Whose variables are read.
const PROGRAM: Program = Program::DevicePlugin;

/// Offers the GPUs of this node to the kubelet as `nvidia.com/gpu` and the like.
///
/// Flags, environment variables and configuration file are those of nvidia-device-plugin v0.20; a flag beats its variable
/// (in brackets), which beats the file; a variable that is set and empty counts as not set. What of it is not supported is
/// refused at the start. SIGHUP has the file and the GPUs read again.
#[derive(Debug, Clone, Parser)]
#[command(name = "gpu-device-plugin", version)]
pub(super) struct DevicePlugin {
    #[command(flatten)]
    vendor: VendorArguments,

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

    /// What CDI files have or have not, joined by commas: enable-explicit-driver-libraries, enable-coherent-annotations,
    /// no-additional-gids-for-device-nodes, disable-ipc-discoverer; disable-nvsandboxutils and disable-multiple-csv-devices change
    /// nothing
    #[arg(long, env = env::CDI_FEATURE_FLAGS, value_name = "NAMES", value_delimiter = ',')]
    cdi_feature_flags: Vec<CdiFeature>,

    /// The GPUs to offer and no others, joined by commas: indices, UUIDs or PCI addresses (an addition of this program)
    #[arg(long, env = env::INCLUDE_GPUS, value_name = "GPUS", value_delimiter = ',')]
    include_gpus: Vec<GpuRef>,

    /// The GPUs not to offer, joined by commas (an addition of this program)
    #[arg(long, env = env::EXCLUDE_GPUS, value_name = "GPUS", value_delimiter = ',')]
    exclude_gpus: Vec<GpuRef>,

    /// What Xids say of their GPU, as in `94=application,48=fatal`: ignore, application, reset-required (unhealthy until it has
    /// been sound for a while) or fatal (and only if it was away meanwhile, or waited for a reset and waits no more); beats
    /// `DP_DISABLE_HEALTHCHECKS` and `DP_ENABLE_HEALTHCHECKS` (an addition of this program)
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
    #[arg(long, env = env::RELEASE_ON_EXIT, value_name = "BOOL", default_value = "false", value_parser = parse_bool,
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
}
