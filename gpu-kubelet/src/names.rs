//! Paths and words that the kubelet fixes.

/// Where device plugins put their sockets; read by every kubelet, whatever its root directory is.
pub const DEVICE_PLUGIN_DIR: &str = "/var/lib/kubelet/device-plugins/";

/// The file name of the kubelet's registration socket in [`DEVICE_PLUGIN_DIR`].
pub const KUBELET_SOCKET_NAME: &str = "kubelet.sock";

/// Where a device plugin registers: [`KUBELET_SOCKET_NAME`] in [`DEVICE_PLUGIN_DIR`].
pub const KUBELET_SOCKET: &str = "/var/lib/kubelet/device-plugins/kubelet.sock";

/// Where the kubelet serves [pod resources](crate::pod_resources).
pub const POD_RESOURCES_SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";

/// The version that a device plugin names when it registers.
pub const DEVICE_PLUGIN_VERSION: &str = "v1beta1";

/// The health of a device that may be handed out. The kubelet takes any other word for unhealthy.
pub const HEALTHY: &str = "Healthy";

/// The health of a device that may not be handed out.
pub const UNHEALTHY: &str = "Unhealthy";
