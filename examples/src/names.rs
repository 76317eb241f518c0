//! Environment variables that the programs read. Those of the device plugin's health checks are in `gpu_plugin::names`.

/// The NVML library to load, in place of the one that is found.
pub const NVML_LIBRARY: &str = "GPU_NVML_LIBRARY";

/// Where the host's `/proc`, `/sys`, `/dev`, `/run` and `/etc` are.
pub const HOST_ROOT: &str = "GPU_HOST_ROOT";

/// The form of log lines.
pub const LOG_FORMAT: &str = "GPU_LOG_FORMAT";

/// The folder that CDI files are written to.
pub const CDI_DIR: &str = "GPU_CDI_DIR";

/// The root of the driver's files on the host; the vendor's programs read it too, as all that follow.
pub const DRIVER_ROOT: &str = "NVIDIA_DRIVER_ROOT";

/// What `nvidia-device-plugin` v0.20 reads.
pub mod device_plugin {
    /// Whether a node that cannot be read ends the program.
    pub const FAIL_ON_INIT_ERROR: &str = "FAIL_ON_INIT_ERROR";
    /// How containers are told their GPUs.
    pub const DEVICE_LIST_STRATEGY: &str = "DEVICE_LIST_STRATEGY";
    /// By which name they are told.
    pub const DEVICE_ID_STRATEGY: &str = "DEVICE_ID_STRATEGY";
    /// The root of the device nodes on the host.
    pub const DEV_ROOT: &str = "NVIDIA_DEV_ROOT";
    /// Where the driver root is seen from the plugin.
    pub const DRIVER_ROOT_CTR_PATH: &str = "DRIVER_ROOT_CTR_PATH";
    /// The same, after [`DRIVER_ROOT_CTR_PATH`].
    pub const CONTAINER_DRIVER_ROOT: &str = "CONTAINER_DRIVER_ROOT";
    /// The hook program that CDI files name.
    pub const CDI_HOOK_PATH: &str = "NVIDIA_CDI_HOOK_PATH";
    /// The same, after [`CDI_HOOK_PATH`].
    pub const CTK_PATH: &str = "NVIDIA_CTK_PATH";
    /// Hooks to leave out of CDI files.
    pub const CDI_DISABLE_HOOKS: &str = "CDI_DISABLE_HOOKS";
    /// The kubelet's registration socket.
    pub const KUBELET_SOCKET: &str = "KUBELET_SOCKET";
}

/// What `gpu-feature-discovery`, and `gpuctl labels` of it, read beyond the settings of the configuration file, whose
/// variables are `gpu_sharing::config`'s.
pub mod feature_discovery {
    /// The configuration file; a variable of the vendor's program, as all before [`NODE_LABELS`].
    pub const GFD_CONFIG_FILE: &str = "GFD_CONFIG_FILE";
    /// The same, after [`GFD_CONFIG_FILE`].
    pub const CONFIG_FILE: &str = "CONFIG_FILE";
    /// How MIG devices are labelled.
    pub const MIG_STRATEGY: &str = "MIG_STRATEGY";
    /// The file that says where the API server is.
    pub const KUBECONFIG: &str = "KUBECONFIG";
    /// How many requests a second the API server gets.
    pub const KUBE_API_QPS: &str = "KUBE_API_QPS";
    /// How many at once.
    pub const KUBE_API_BURST: &str = "KUBE_API_BURST";
    /// The namespace of the `NodeFeature` object.
    pub const NAMESPACE: &str = "NAMESPACE";
    /// The name of the node.
    pub const NODE_NAME: &str = "NODE_NAME";
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
    /// Whether unknown keys of the configuration file are passed over.
    pub const LENIENT_CONFIG: &str = "GPU_LENIENT_CONFIG";
    /// Whether the configuration file may name resources.
    pub const RESOURCE_NAMING: &str = "GPU_RESOURCE_NAMING";
    /// Where `/healthz` is answered.
    pub const LISTEN: &str = "GPU_LISTEN";
}
