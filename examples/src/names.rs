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
