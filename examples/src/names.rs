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

/// The root of the driver's files on the host; the vendor's programs read it too, as all that follow.
pub const DRIVER_ROOT: &str = "NVIDIA_DRIVER_ROOT";

/// What the device plugin reads besides the settings of the vendor's configuration file, whose variables are in
/// `gpu_sharing::config`. All but the first three are additions of ours.
pub mod device_plugin {
    /// The kubelet's registration socket.
    pub const KUBELET_SOCKET: &str = "KUBELET_SOCKET";
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
    /// Where probes are answered.
    pub const LISTEN: &str = "GPU_LISTEN";
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
    /// Devices that the kubelet is told, replicas counted, by `resource` and `health`.
    pub const PLUGIN_DEVICES: &str = "gpu_device_plugin_devices";
    /// Whether the kubelet has registered a `resource` and listens, 1 or 0.
    pub const PLUGIN_REGISTERED: &str = "gpu_device_plugin_registered";
    /// How many things are amiss on the node; the log names them.
    pub const PLUGIN_PROBLEMS: &str = "gpu_device_plugin_problems";
}
