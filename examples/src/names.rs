//! Environment variables that the programs read. Those of the device plugin's health checks are in `gpu_plugin::names`.

/// The NVML library to load, in place of the one that is found.
pub const NVML_LIBRARY: &str = "GPU_NVML_LIBRARY";

/// Where the host's `/proc`, `/sys`, `/dev`, `/run` and `/etc` are.
pub const HOST_ROOT: &str = "GPU_HOST_ROOT";

/// The form of log lines.
pub const LOG_FORMAT: &str = "GPU_LOG_FORMAT";

/// The folder that CDI files are written to.
pub const CDI_DIR: &str = "GPU_CDI_DIR";

/// Where probes and metrics are answered.
pub const LISTEN: &str = "GPU_LISTEN";

/// Whether unknown keys of the configuration file are passed over.
pub const LENIENT_CONFIG: &str = "GPU_LENIENT_CONFIG";

/// Whether the configuration file may name resources.
pub const RESOURCE_NAMING: &str = "GPU_RESOURCE_NAMING";

/// The configuration file; a variable of the vendor's programs.
pub const CONFIG_FILE: &str = "CONFIG_FILE";

/// The root of the driver's files on the host; the vendor's programs read it too, as all that follow.
pub const DRIVER_ROOT: &str = "NVIDIA_DRIVER_ROOT";

/// The file that says where the API server is.
pub const KUBECONFIG: &str = "KUBECONFIG";

/// The name of the node that a program runs on.
pub const NODE_NAME: &str = "NODE_NAME";

/// What `config-manager` reads, all of it variables of the vendor's; the device plugin reads those by which a file is chosen.
pub mod config_manager {
    /// Whether a file is chosen once, and the program ends.
    pub const ONESHOT: &str = "ONESHOT";
    /// The folder of the configuration files.
    pub const CONFIG_FILE_SRCDIR: &str = "CONFIG_FILE_SRCDIR";
    /// The link that is made to one of them.
    pub const CONFIG_FILE_DST: &str = "CONFIG_FILE_DST";
    /// The label of the node that names one.
    pub const NODE_LABEL: &str = "NODE_LABEL";
    /// The file that is chosen without a label.
    pub const DEFAULT_CONFIG: &str = "DEFAULT_CONFIG";
    /// What is chosen without a label and a default.
    pub const FALLBACK_STRATEGIES: &str = "FALLBACK_STRATEGIES";
    /// Whether a program is signalled.
    pub const SEND_SIGNAL: &str = "SEND_SIGNAL";
    /// The number of the signal.
    pub const SIGNAL: &str = "SIGNAL";
    /// The program that is signalled.
    pub const PROCESS_TO_SIGNAL: &str = "PROCESS_TO_SIGNAL";
}

/// How often `gpu-container-runtime` has been called on the way to this call; its own, since a low-level runtime may lead back
/// to it.
pub const RUNTIME_DEPTH: &str = "GPU_CONTAINER_RUNTIME_DEPTH";

/// The toolkit's `config.toml`.
pub const TOOLKIT_CONFIG_FILE: &str = "NVIDIA_CTK_CONFIG_FILE_PATH";

/// What the device plugin reads besides the settings of the vendor's configuration file, whose variables are in
/// `gpu_sharing::config`. All but [`KUBELET_SOCKET`](device_plugin::KUBELET_SOCKET) and those that
/// begin with `CDI_` are additions of ours.
pub mod device_plugin {
    /// The kubelet's registration socket.
    pub const KUBELET_SOCKET: &str = "KUBELET_SOCKET";
    /// Where the kubelet tells what it can hand out.
    pub const POD_RESOURCES_SOCKET: &str = "GPU_POD_RESOURCES_SOCKET";
    /// Hooks to leave out of CDI files.
    pub const CDI_DISABLE_HOOKS: &str = "CDI_DISABLE_HOOKS";
    /// What CDI files have or have not.
    pub const CDI_FEATURE_FLAGS: &str = "CDI_FEATURE_FLAGS";
    /// The GPUs that are offered; all others are not.
    pub const INCLUDE_GPUS: &str = "GPU_INCLUDE_GPUS";
    /// The GPUs that are not offered.
    pub const EXCLUDE_GPUS: &str = "GPU_EXCLUDE_GPUS";
    /// What Xids say of their GPU.
    pub const XID_CLASSES: &str = "GPU_XID_CLASSES";
    /// How long a GPU must have been sound to be healthy again.
    pub const HEALTH_QUIET_PERIOD: &str = "GPU_HEALTH_QUIET_PERIOD";
    /// The file by which the programs of a node agree who offers which GPU.
    pub const OWNERS_FILE: &str = "GPU_OWNERS_FILE";
    /// Whether GPUs are given up at the end.
    pub const RELEASE_ON_EXIT: &str = "GPU_RELEASE_ON_EXIT";
}

/// What `gpu-feature-discovery`, and `gpuctl labels` of it, read beyond the settings of the configuration file, whose
/// variables are `gpu_sharing::config`'s.
pub mod feature_discovery {
    /// The configuration file, before [`CONFIG_FILE`](super::CONFIG_FILE); a variable of the vendor's program, as all before
    /// [`NODE_LABELS`].
    pub const GFD_CONFIG_FILE: &str = "GFD_CONFIG_FILE";
    /// How MIG devices are labelled.
    pub const MIG_STRATEGY: &str = "MIG_STRATEGY";
    /// How many requests a second the API server gets.
    pub const KUBE_API_QPS: &str = "KUBE_API_QPS";
    /// How many at once.
    pub const KUBE_API_BURST: &str = "KUBE_API_BURST";
    /// The namespace of the `NodeFeature` object.
    pub const NAMESPACE: &str = "NAMESPACE";
    /// The name of the program's pod.
    pub const POD_NAME: &str = "POD_NAME";
    /// Whether the node itself is labelled.
    pub const NODE_LABELS: &str = "GPU_NODE_LABELS";
    /// Whether it also gets the labels of PCI devices.
    pub const PCI_LABELS: &str = "GPU_PCI_LABELS";
    /// Whether every model has labels.
    pub const PER_MODEL_LABELS: &str = "GPU_PER_MODEL_LABELS";
    /// With what the `NodeFeature` object ends.
    pub const NODE_FEATURE_OWNER: &str = "GPU_NODE_FEATURE_OWNER";
    /// Whether labels are taken back at the end.
    pub const REMOVE_ON_EXIT: &str = "GPU_REMOVE_ON_EXIT";
}

/// What `gpu-mps-daemon` reads besides the vendor's settings; all of it additions of ours.
pub mod mps_daemon {
    /// Where daemons, device plugin and clients meet; the device plugin reads it too.
    pub const ROOT: &str = "GPU_MPS_DIR";
    /// What the compute mode of shared GPUs is to be.
    pub const COMPUTE_MODE: &str = "GPU_MPS_COMPUTE_MODE";
    /// The control program of MPS.
    pub const CONTROL: &str = "GPU_MPS_CONTROL";
}

/// Metrics, for Prometheus.
pub mod metrics {
    /// Whether the MPS daemon of a `resource` serves, 1 or 0.
    pub const MPS_SERVES: &str = "gpu_mps_daemon_serves";
    /// How often the MPS daemon of a `resource` failed and was started again.
    pub const MPS_FAILURES: &str = "gpu_mps_daemon_failures";
    /// Whether the newest configuration of the MPS daemons is refused and the one before it in force, 1 or 0.
    pub const MPS_CONFIG_REFUSED: &str = "gpu_mps_daemon_config_refused";
    /// How many things keep the MPS daemons from running as configured; `/readyz` says what.
    pub const MPS_PROBLEMS: &str = "gpu_mps_daemon_problems";
    /// Devices that the kubelet is told, replicas counted, by `resource` and `health`.
    pub const PLUGIN_DEVICES: &str = "gpu_device_plugin_devices";
    /// Whether the kubelet has registered a `resource` and listens, 1 or 0.
    pub const PLUGIN_REGISTERED: &str = "gpu_device_plugin_registered";
    /// A `gpu`, or instance of one (`gpu_instance`, `compute_instance`), that is suspect or unhealthy (`health`): 1.
    pub const PLUGIN_AILING: &str = "gpu_device_plugin_ailing";
    /// Whether the newest configuration is refused and the one before it in force, 1 or 0.
    pub const PLUGIN_CONFIG_REFUSED: &str = "gpu_device_plugin_config_refused";
    /// How many things are amiss on the node; the log names them.
    pub const PLUGIN_PROBLEMS: &str = "gpu_device_plugin_problems";
}
