//! The flags and variables.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, ValueEnum};
use gpu_labels::gpu_sharing::config::{DiscoveryStrategy, Flags, GfdFlags, Interval, MigStrategy, PluginFlags};

use crate::{
    logging::Logging,
    names::{self, feature_discovery as env},
    settings::ConfigArguments,
    vendor,
};

/// Labels this node with its GPUs: `nvidia.com/gpu.product` and the like.
///
/// Flags, environment variables and configuration file are those of gpu-feature-discovery v0.20; a flag beats its variable
/// (in brackets), which beats the file; of a flag that is given twice the last counts. Labels stay when the program ends.
#[derive(Debug, Parser)]
#[command(name = "gpu-feature-discovery", version, args_override_self = true)]
pub(super) struct FeatureDiscovery {
    #[command(flatten)]
    pub(super) vendor: Vendor,

    #[command(flatten)]
    pub(super) file: ConfigArguments,

    #[command(flatten)]
    pub(super) cluster: Cluster,

    #[command(flatten)]
    pub(super) ours: Ours,

    #[command(flatten)]
    pub(super) logging: Logging,
}

/// Settings that may also be in the configuration file.
#[derive(Debug, Args)]
pub(super) struct Vendor {
    /// Labels of MIG devices: none, single or mixed [`GFD_MIG_STRATEGY`, `MIG_STRATEGY`]
    #[arg(long, value_name = "STRATEGY")]
    pub(super) mig_strategy: Option<MigStrategy>,

    /// Whether a node without a working driver ends the program at its start; if false, the driver is waited for
    /// [`GFD_FAIL_ON_INIT_ERROR`, `FAIL_ON_INIT_ERROR`]
    #[arg(long, value_name = "BOOL", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub(super) fail_on_init_error: Option<bool>,

    /// Whether labels go to a `NodeFeature` object rather than to a file; by default yes
    /// [`GFD_USE_NODE_FEATURE_API`, `USE_NODE_FEATURE_API`]
    #[arg(long, value_name = "BOOL", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub(super) use_node_feature_api: Option<bool>,

    /// Where GPUs are looked for: auto or nvml [`DEVICE_DISCOVERY_STRATEGY`]
    #[arg(long, value_name = "STRATEGY")]
    pub(super) device_discovery_strategy: Option<DiscoveryStrategy>,

    /// Where the driver root is seen from here [`DRIVER_ROOT_CTR_PATH`, `CONTAINER_DRIVER_ROOT`]
    #[arg(long, alias = "container-driver-root", value_name = "PATH")]
    pub(super) driver_root_ctr_path: Option<String>,

    /// Label once and end [`GFD_ONESHOT`]
    #[arg(long, value_name = "BOOL", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub(super) oneshot: Option<bool>,

    /// Leave out the label with the time of the start [`GFD_NO_TIMESTAMP`]
    #[arg(long, value_name = "BOOL", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub(super) no_timestamp: Option<bool>,

    /// The time between two rounds, as in `60s`, or `infinite` [`GFD_SLEEP_INTERVAL`]
    #[arg(long, value_name = "TIME")]
    pub(super) sleep_interval: Option<Interval>,

    /// The file that labels are written to; an empty one is standard output [`GFD_OUTPUT_FILE`]
    #[arg(short, long, alias = "output", value_name = "PATH")]
    pub(super) output_file: Option<String>,

    /// The file with the machine's type, below the host root; an empty one for none [`GFD_MACHINE_TYPE_FILE`]
    #[arg(long, value_name = "PATH")]
    pub(super) machine_type_file: Option<String>,
}

/// How the API server is reached.
#[derive(Debug, Args)]
pub(super) struct Cluster {
    /// The file that says where the API server is; in a pod it is known without
    #[arg(long, env = names::KUBECONFIG, value_name = "PATH")]
    pub(super) kubeconfig: Option<PathBuf>,

    /// How many requests per second are sent at most
    #[arg(long, env = env::KUBE_API_QPS, default_value_t = 5.0, value_name = "NUMBER", value_parser = rate)]
    pub(super) kube_api_qps: f64,

    /// How many of them at once
    #[arg(long, env = env::KUBE_API_BURST, default_value_t = 10, value_name = "NUMBER",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) kube_api_burst: u32,

    /// The namespace of the `NodeFeature` object, and of this program's pod
    #[arg(long, env = env::NAMESPACE, default_value = "default", value_name = "NAME")]
    pub(super) namespace: String,

    /// The name of this node
    #[arg(
        long,
        env = names::NODE_NAME,
        default_value = "",
        hide_default_value = true,
        value_name = "NAME"
    )]
    pub(super) node_name: String,

    /// The name of this program's pod, which owns the object with its `DaemonSet`
    #[arg(
        long,
        env = env::POD_NAME,
        default_value = "",
        hide_default_value = true,
        value_name = "NAME"
    )]
    pub(super) pod_name: String,
}

/// Additions to the vendor's.
#[derive(Debug, Args)]
pub(super) struct Ours {
    /// Label the node itself, for a cluster without Node Feature Discovery (an addition of this program)
    #[arg(long, env = env::NODE_LABELS, value_name = "BOOL", default_value = "false", value_parser = vendor::parse_bool,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) node_labels: bool,

    /// With --node-labels: also `feature.node.kubernetes.io/pci-10de.present` and its like, driver or not, unless Node Feature
    /// Discovery runs on the node (an addition of this program)
    #[arg(long, env = env::PCI_LABELS, value_name = "BOOL", default_value = "false", value_parser = vendor::parse_bool,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) pci_labels: bool,

    /// Labels of every model of a node with several, `nvidia.com/gpu-1.product` and so on (an addition of this program)
    #[arg(long, env = env::PER_MODEL_LABELS, value_name = "BOOL", default_value = "false",
          value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) per_model_labels: bool,

    /// With what the `NodeFeature` object ends (an addition of this program)
    #[arg(long, env = env::NODE_FEATURE_OWNER, value_enum, default_value_t = OwnerKind::Workload)]
    pub(super) node_feature_owner: OwnerKind,

    /// Take the labels back at SIGTERM and SIGINT (an addition of this program)
    #[arg(long, env = env::REMOVE_ON_EXIT, value_name = "BOOL", default_value = "false", value_parser = vendor::parse_bool,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) remove_on_exit: bool,

    /// Answer /healthz at this address (an addition of this program)
    #[arg(long, env = names::LISTEN, value_name = "ADDRESS:PORT")]
    pub(super) listen: Option<SocketAddr>,

    /// The NVML library; default: beneath the driver root, then the loader's search path (an addition of this program)
    #[arg(long, env = names::NVML_LIBRARY, value_name = "PATH")]
    pub(super) nvml_library: Option<PathBuf>,

    /// Where the host's /sys is (an addition of this program)
    #[arg(long, env = names::HOST_ROOT, default_value = "/", value_name = "PATH")]
    pub(super) host_root: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum OwnerKind {
    /// Of the pod and its `DaemonSet`
    Workload,
    /// Of the node
    Node,
    /// Of nothing
    None,
}

/// Within bounds, because the time that a burst of requests takes has to be one.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.01..=10_000.0).contains(&number) => Ok(number),
        _ => Err("expected a number from 0.01 to 10000".to_owned()),
    }
}

impl Vendor {
    /// As settings, to be put above those of the environment and the file.
    pub(super) fn flags(&self) -> Flags {
        Flags {
            mig_strategy: self.mig_strategy,
            fail_on_init_error: self.fail_on_init_error,
            use_node_feature_api: self.use_node_feature_api,
            device_discovery_strategy: self.device_discovery_strategy,
            plugin: PluginFlags {
                container_driver_root: self.driver_root_ctr_path.clone(),
                ..PluginFlags::default()
            },
            gfd: GfdFlags {
                oneshot: self.oneshot,
                no_timestamp: self.no_timestamp,
                sleep_interval: self.sleep_interval,
                output_file: self.output_file.clone(),
                machine_type_file: self.machine_type_file.clone(),
            },
            ..Flags::default()
        }
    }
}
