//! Words that others depend on.

/// The resource of whole GPUs, as pods ask for it.
pub const GPU_RESOURCE: &str = "nvidia.com/gpu";

/// Read by the NVIDIA container runtime: the devices that a container gets.
pub const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";

/// The kind of the CDI devices that `Allocate` names. The kubelet checkpoints these names, so they must
/// stay resolvable for the life of a pod.
pub const CDI_KIND: &str = "k8s.device-plugin.nvidia.com/gpu";

/// The CDI file of [`CDI_KIND`] in the CDI directory.
pub const CDI_FILE: &str = "k8s.device-plugin.nvidia.com-gpu.json";

/// Xids that mark no device unhealthy, besides the default ones: a comma-separated list, or `all`.
pub const DISABLE_HEALTHCHECKS: &str = "DP_DISABLE_HEALTHCHECKS";

/// Xids that do mark a device unhealthy whatever [`DISABLE_HEALTHCHECKS`] says: a comma-separated list, or `all`.
pub const ENABLE_HEALTHCHECKS: &str = "DP_ENABLE_HEALTHCHECKS";
