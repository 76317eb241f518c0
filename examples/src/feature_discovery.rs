//! `gpu-feature-discovery`: labels this node with its GPUs, in the place of the vendor's program of that name.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::bail;
use clap::{Args, Parser, ValueEnum};
use gpu_labels::{
    Options as LabelOptions,
    gpu_core::nvml::LibrarySearch,
    gpu_sharing::config::{Config, DiscoveryStrategy, Flags, GfdFlags, Interval, MigStrategy, PluginFlags, Program},
};

use crate::{
    logging::Logging,
    program,
    settings::{ConfigArguments, Settings},
    vendor,
};

mod daemon;
mod hardware;
mod target;

/// Whose variables are read.
const PROGRAM: Program = Program::FeatureDiscovery;

/// Labels this node with its GPUs: `nvidia.com/gpu.product` and the like.
///
/// Flags, environment variables and configuration file are those of gpu-feature-discovery v0.20; a flag beats its variable
/// (in brackets), which beats the file. Labels stay when the program ends.
#[derive(Debug, Parser)]
#[command(name = "gpu-feature-discovery", version)]
struct FeatureDiscovery {
    #[command(flatten)]
    vendor: Vendor,

    #[command(flatten)]
    file: ConfigArguments,

    #[command(flatten)]
    cluster: Cluster,

    #[command(flatten)]
    ours: Ours,

    #[command(flatten)]
    logging: Logging,
}

/// Settings that may also be in the configuration file.
#[derive(Debug, Args)]
struct Vendor {
    /// Labels of MIG devices: none, single or mixed [`GFD_MIG_STRATEGY`, `MIG_STRATEGY`]
    #[arg(long, value_name = "STRATEGY")]
    mig_strategy: Option<MigStrategy>,

    /// Whether a node without a working driver ends the program at its start; if false, the driver is waited for
    /// [`GFD_FAIL_ON_INIT_ERROR`, `FAIL_ON_INIT_ERROR`]
    #[arg(long, value_name = "BOOL", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    fail_on_init_error: Option<bool>,

    /// Whether labels go to a `NodeFeature` object rather than to a file; by default yes
    /// [`GFD_USE_NODE_FEATURE_API`, `USE_NODE_FEATURE_API`]
    #[arg(long, value_name = "BOOL", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    use_node_feature_api: Option<bool>,

    /// Where GPUs are looked for: auto or nvml [`DEVICE_DISCOVERY_STRATEGY`]
    #[arg(long, value_name = "STRATEGY")]
    device_discovery_strategy: Option<DiscoveryStrategy>,

    /// Where the driver root is seen from here [`DRIVER_ROOT_CTR_PATH`, `CONTAINER_DRIVER_ROOT`]
    #[arg(long, alias = "container-driver-root", value_name = "PATH")]
    driver_root_ctr_path: Option<String>,

    /// Label once and end [`GFD_ONESHOT`]
    #[arg(long, value_name = "BOOL", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    oneshot: Option<bool>,

    /// Leave out the label with the time of the start [`GFD_NO_TIMESTAMP`]
    #[arg(long, value_name = "BOOL", value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    no_timestamp: Option<bool>,

    /// The time between two rounds, as in `60s`, or `infinite` [`GFD_SLEEP_INTERVAL`]
    #[arg(long, value_name = "TIME")]
    sleep_interval: Option<Interval>,

    /// The file that labels are written to; an empty one is standard output [`GFD_OUTPUT_FILE`]
    #[arg(short, long, alias = "output", value_name = "PATH")]
    output_file: Option<String>,

    /// The file with the machine's type, below the host root; an empty one for none [`GFD_MACHINE_TYPE_FILE`]
    #[arg(long, value_name = "PATH")]
    machine_type_file: Option<String>,
}

/// How the API server is reached.
#[derive(Debug, Args)]
struct Cluster {
    /// The file that says where the API server is; in a pod it is known without
    #[arg(long, env = "KUBECONFIG", value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    /// How many requests per second are sent at most
    #[arg(long, env = "KUBE_API_QPS", default_value_t = 5.0, value_name = "NUMBER", value_parser = positive)]
    kube_api_qps: f64,

    /// How many of them at once
    #[arg(long, env = "KUBE_API_BURST", default_value_t = 10, value_name = "NUMBER",
          value_parser = clap::value_parser!(u32).range(1..))]
    kube_api_burst: u32,

    /// The namespace of the `NodeFeature` object, and of this program's pod
    #[arg(long, env = "NAMESPACE", default_value = "default", value_name = "NAME")]
    namespace: String,

    /// The name of this node
    #[arg(
        long,
        env = "NODE_NAME",
        default_value = "",
        hide_default_value = true,
        value_name = "NAME"
    )]
    node_name: String,

    /// The name of this program's pod, which owns the object with its `DaemonSet`
    #[arg(
        long,
        env = "POD_NAME",
        default_value = "",
        hide_default_value = true,
        value_name = "NAME"
    )]
    pod_name: String,
}

/// Additions to the vendor's.
#[derive(Debug, Args)]
struct Ours {
    /// Label the node itself, for a cluster without Node Feature Discovery (an addition of this program)
    #[arg(long, env = "GPU_NODE_LABELS", value_name = "BOOL", default_value = "false", value_parser = vendor::parse_bool,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    node_labels: bool,

    /// With --node-labels: also `feature.node.kubernetes.io/pci-10de.present` and its like, driver or not, unless Node Feature
    /// Discovery runs on the node (an addition of this program)
    #[arg(long, env = "GPU_PCI_LABELS", value_name = "BOOL", default_value = "false", value_parser = vendor::parse_bool,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pci_labels: bool,

    /// Labels of every model of a node with several, `nvidia.com/gpu-1.product` and so on (an addition of this program)
    #[arg(long, env = "GPU_PER_MODEL_LABELS", value_name = "BOOL", default_value = "false",
          value_parser = vendor::parse_bool, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    per_model_labels: bool,

    /// With what the `NodeFeature` object ends (an addition of this program)
    #[arg(long, env = "GPU_NODE_FEATURE_OWNER", value_enum, default_value_t = OwnerKind::Workload)]
    node_feature_owner: OwnerKind,

    /// Take the labels back at SIGTERM and SIGINT (an addition of this program)
    #[arg(long, env = "GPU_REMOVE_ON_EXIT", value_name = "BOOL", default_value = "false", value_parser = vendor::parse_bool,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    remove_on_exit: bool,

    /// Answer /healthz at this address (an addition of this program)
    #[arg(long, env = "GPU_LISTEN", value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// The NVML library; default: beneath the driver root, then the loader's search path (an addition of this program)
    #[arg(long, env = "GPU_NVML_LIBRARY", value_name = "PATH")]
    nvml_library: Option<PathBuf>,

    /// Where the host's /sys is (an addition of this program)
    #[arg(long, env = "GPU_HOST_ROOT", default_value = "/", value_name = "PATH")]
    host_root: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OwnerKind {
    /// Of the pod and its `DaemonSet`
    Workload,
    /// Of the node
    Node,
    /// Of nothing
    None,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("expected a number greater than zero".to_owned()),
    }
}

/// Runs `gpu-feature-discovery` with these arguments, the program's name first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let program: FeatureDiscovery = program::parse(arguments);
    program::run(|| {
        program.logging.start()?;
        let settings = program.settings()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let result = runtime.block_on(daemon::run(&program, settings));
        // A driver call that hangs must not keep the process from ending.
        runtime.shutdown_timeout(Duration::from_millis(100));
        result
    })
}

impl FeatureDiscovery {
    /// Reads the configuration file and puts it beneath the environment and the flags.
    fn settings(&self) -> anyhow::Result<Settings> {
        let settings = self.file.settings(PROGRAM, self.vendor.flags())?;
        if let strategy @ (DiscoveryStrategy::Tegra | DiscoveryStrategy::Vfio) =
            settings.config.device_discovery_strategy
        {
            bail!("--device-discovery-strategy=`{strategy}` is not supported");
        }
        if self.ours.pci_labels && !self.ours.node_labels {
            bail!("--pci-labels needs --node-labels: elsewhere Node Feature Discovery makes these labels");
        }
        Ok(settings)
    }

    fn config_text(&self) -> anyhow::Result<Option<String>> {
        self.file.text(PROGRAM)
    }

    fn library_search(&self, config: &Config) -> LibrarySearch {
        let root = Path::new(&config.plugin.container_driver_root);
        LibrarySearch {
            library: self.ours.nvml_library.clone(),
            driver_root: Some(if root.is_dir() {
                root.to_owned()
            } else {
                PathBuf::from("/")
            }),
        }
    }

    fn label_options(&self) -> LabelOptions {
        LabelOptions {
            per_model: self.ours.per_model_labels,
        }
    }
}

impl Vendor {
    fn flags(&self) -> Flags {
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

#[cfg(test)]
mod tests;
