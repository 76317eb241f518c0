//! Keys and values of labels and annotations.

/// Label: the name of the configuration that the node is to have. Set by people and by the operator.
pub const CONFIG: &str = "nvidia.com/mig.config";

/// Label: how far that is, `pending`, `rebooting`, `success` or `failed`. Read by the operator's validator and by people.
pub const STATE: &str = "nvidia.com/mig.config.state";

/// Annotation (ours): the value of [`CONFIG`] that [`STATE`] is about.
pub const STATE_VALUE: &str = "nvidia.com/mig.config.state-value";

/// Annotation (ours): why the state is `failed`.
pub const STATE_REASON: &str = "nvidia.com/mig.config.state-reason";

/// Annotation (ours): the lease under which others wait, as JSON.
pub const LEASE: &str = "nvidia.com/mig.pause-lease";

/// Annotation (ours): the value of [`CONFIG`] for which the host was rebooted. It goes with success or another value; while it
/// is there, the host is not rebooted for that value again.
pub const REBOOTED: &str = "nvidia.com/mig.config.rebooted-for";

/// The value of a label in [`PAUSED`] while its program is to wait. The operator's `DaemonSet`s then leave the node.
pub const PAUSE: &str = "paused-for-mig-change";

/// Labels of programs that use GPUs and wait while instances are destroyed. One that is absent or `false` stays so.
pub const PAUSED: [&str; 6] = [
    "nvidia.com/gpu.deploy.device-plugin",
    "nvidia.com/gpu.deploy.gpu-feature-discovery",
    "nvidia.com/gpu.deploy.dcgm-exporter",
    "nvidia.com/gpu.deploy.dcgm",
    "nvidia.com/gpu.deploy.nvsm",
    "nvidia.com/gpu.deploy.client",
];

/// The label `app` of pods that go when their label in [`PAUSED`] is paused, and are waited for.
pub const WAITED_FOR: [&str; 4] = [
    "nvidia-device-plugin-daemonset",
    "gpu-feature-discovery",
    "nvidia-dcgm-exporter",
    "nvidia-dcgm",
];

/// A `DaemonSet`'s node selector with this key makes its pods wait too.
pub const CLIENT: &str = "nvidia.com/gpu.deploy.client";

/// The label `app` of pods that only check a node: deleted before a change.
pub const CHECKS: [&str; 2] = ["nvidia-cuda-validator", "nvidia-device-plugin-validator"];

/// The label `app` of the pod that checks a node anew: deleted after a change.
pub const VALIDATOR: &str = "nvidia-operator-validator";
