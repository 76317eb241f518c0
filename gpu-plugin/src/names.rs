//! Words that others depend on.

/// The resource of whole GPUs, as pods ask for it.
pub const GPU_RESOURCE: &str = "nvidia.com/gpu";

/// The id of the GPU of a Tegra machine, in the vendor's words; its CDI name where devices go by their UUIDs.
pub const TEGRA_DEVICE: &str = "tegra";

/// The id, and the CDI name, of the GPUs that Windows lends to its subsystem for Linux, in the vendor's words.
pub const WSL_DEVICE: &str = "all";

/// The node of these GPUs.
pub const WSL_NODE: &str = "/dev/dxg";

/// Read by the NVIDIA container runtime: the devices that a container gets.
pub const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";

/// Read by the NVIDIA container runtime: the IMEX channels that a container gets.
pub const IMEX_CHANNELS: &str = "NVIDIA_IMEX_CHANNELS";

/// Read by the NVIDIA container runtime: whether a container gets the devices of `GDRCopy`.
pub const GDRCOPY: &str = "NVIDIA_GDRCOPY";

/// Read by the NVIDIA container runtime: whether a container gets the devices of `GPUDirect` Storage.
pub const GDS: &str = "NVIDIA_GDS";

/// Read by the NVIDIA container runtime: whether a container gets the `InfiniBand` devices.
pub const MOFED: &str = "NVIDIA_MOFED";

/// The value of [`GDRCOPY`], [`GDS`] and [`MOFED`].
pub const ENABLED: &str = "enabled";

/// The folder in a container whose entries name its devices, for the NVIDIA container runtime.
pub const DEVICES_FOLDER: &str = "/var/run/nvidia-container-devices";

/// What the names of an IMEX channel's device node begin with.
pub const IMEX_NODE: &str = "/dev/nvidia-caps-imex-channels/channel";

/// The kind of the CDI devices that `Allocate` names. The kubelet checkpoints these names, so they must
/// stay resolvable for the life of a pod.
pub const CDI_KIND: &str = "k8s.device-plugin.nvidia.com/gpu";

/// The kind of IMEX channels, likewise.
pub const IMEX_CDI_KIND: &str = "k8s.device-plugin.nvidia.com/imex-channel";

/// The vendor of all kinds of this plugin.
pub const CDI_VENDOR: &str = "k8s.device-plugin.nvidia.com";

/// The CDI file of [`CDI_KIND`] in the CDI directory.
pub const CDI_FILE: &str = "k8s.device-plugin.nvidia.com-gpu.json";

/// What the key of a CDI annotation begins with after its prefix.
pub const ANNOTATION_PLUGIN: &str = "nvidia-device-plugin";

/// Xids that mark no device unhealthy, besides the default ones: a comma-separated list, or `all`.
pub const DISABLE_HEALTHCHECKS: &str = "DP_DISABLE_HEALTHCHECKS";

/// Xids that do mark a device unhealthy whatever [`DISABLE_HEALTHCHECKS`] says: a comma-separated list, or `all`.
pub const ENABLE_HEALTHCHECKS: &str = "DP_ENABLE_HEALTHCHECKS";
