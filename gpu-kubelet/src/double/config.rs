use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::names;

/// Where a kubelet double has its sockets, and how long it waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where plugins put their sockets, and the kubelet its own.
    pub device_plugin_dir: PathBuf,
    /// Where pod resources are served.
    pub pod_resources_socket: PathBuf,
    /// How long `Register` tries to reach the plugin. The real kubelet's, and the default: 10 s.
    ///
    /// It also bounds the wait for the plugin's options, for which the real kubelet has no limit: a plugin that listens
    /// and does not serve would otherwise look connected.
    pub dial_timeout: Duration,
    /// How long any other call to a plugin may last. Default 30 s, the real kubelet's limit for `PreStartContainer`; it has
    /// none for `Allocate` and `GetPreferredAllocation`, so a plugin that needs it hangs a real node.
    pub call_timeout: Duration,
    /// How long a resource without a plugin keeps its place in the node's status. The real kubelet's, and the default: 5 min.
    pub stop_grace: Duration,
    /// Decides the order in which devices are offered and taken. Default 0.
    pub seed: u64,
}

impl Config {
    /// The kubelet's usual layout below a directory: `device-plugins/` and `pod-resources/kubelet.sock`.
    pub fn in_dir(dir: impl AsRef<Path>) -> Self {
        let dir = dir.as_ref();
        Self {
            device_plugin_dir: dir.join("device-plugins"),
            pod_resources_socket: dir.join("pod-resources").join(names::KUBELET_SOCKET_NAME),
            dial_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(30),
            stop_grace: Duration::from_mins(5),
            seed: 0,
        }
    }

    pub(super) fn registration_socket(&self) -> PathBuf {
        self.device_plugin_dir.join(names::KUBELET_SOCKET_NAME)
    }
}
