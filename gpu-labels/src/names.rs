//! The keys of labels, and who reads them.
//!
//! Keys of MIG devices have the resource's name in front: `nvidia.com/gpu` with strategy `single`, and
//! `nvidia.com/mig-1g.10gb` with `mixed`.

/// Of all labels that this crate makes, but for [`PCI_DOMAIN`].
pub const DOMAIN: &str = "nvidia.com";
/// Node Feature Discovery's domain, in which operators look for GPUs.
pub const PCI_DOMAIN: &str = "feature.node.kubernetes.io";

/// When the program began to label, in seconds since 1970: for people who look for a program that stopped.
pub const TIMESTAMP: &str = "nvidia.com/gfd.timestamp";
/// The machine's type.
pub const MACHINE: &str = "nvidia.com/gpu.machine";
/// The model of the GPUs, or of the MIG devices: what pods select nodes by.
pub const PRODUCT: &str = "nvidia.com/gpu.product";
/// How many there are.
pub const COUNT: &str = "nvidia.com/gpu.count";
/// How often each is handed out.
pub const REPLICAS: &str = "nvidia.com/gpu.replicas";
/// `none`, `time-slicing` or `mps`.
pub const SHARING_STRATEGY: &str = "nvidia.com/gpu.sharing-strategy";
/// Memory of one in MiB.
pub const MEMORY: &str = "nvidia.com/gpu.memory";
/// The chip's generation, e.g. `hopper`.
pub const FAMILY: &str = "nvidia.com/gpu.family";
/// Of the compute capability.
pub const COMPUTE_MAJOR: &str = "nvidia.com/gpu.compute.major";
/// Of the compute capability.
pub const COMPUTE_MINOR: &str = "nvidia.com/gpu.compute.minor";
/// `compute`, `graphics`, or `unknown` where there are both.
pub const MODE: &str = "nvidia.com/gpu.mode";
/// The NVLink fabric and the clique in it; read by the compute domain's scheduler.
pub const CLIQUE: &str = "nvidia.com/gpu.clique";
/// `true` where a GPU that should be there cannot be read; an addition of this crate, and absent from a node in order.
pub const DEGRADED: &str = "nvidia.com/gpu.degraded";
/// Whether a GPU can be partitioned. Read by the operator, which starts the MIG manager.
pub const MIG_CAPABLE: &str = "nvidia.com/mig.capable";
/// `single` or `mixed`; absent where MIG devices are not offered.
pub const MIG_STRATEGY: &str = "nvidia.com/mig.strategy";
/// Whether containers share GPUs through MPS. The MPS daemon's `DaemonSet` selects nodes by it.
pub const MPS_CAPABLE: &str = "nvidia.com/mps.capable";
/// Whether a GPU is a virtual one.
pub const VGPU_PRESENT: &str = "nvidia.com/vgpu.present";
/// The host's driver of a virtual GPU. Read by the operator.
pub const VGPU_HOST_VERSION: &str = "nvidia.com/vgpu.host-driver-version";
/// The branch of the host's driver.
pub const VGPU_HOST_BRANCH: &str = "nvidia.com/vgpu.host-driver-branch";

/// The driver's version.
pub const DRIVER_FULL: &str = "nvidia.com/cuda.driver-version.full";
/// The parts of the driver's version, each under its key and under the one before v0.15 of the vendor's program.
pub const DRIVER_PARTS: [[&str; 2]; 3] = [
    ["nvidia.com/cuda.driver-version.major", "nvidia.com/cuda.driver.major"],
    ["nvidia.com/cuda.driver-version.minor", "nvidia.com/cuda.driver.minor"],
    ["nvidia.com/cuda.driver-version.revision", "nvidia.com/cuda.driver.rev"],
];
/// The newest CUDA that the driver runs.
pub const RUNTIME_FULL: &str = "nvidia.com/cuda.runtime-version.full";
/// The parts of CUDA's version, likewise.
pub const RUNTIME_PARTS: [[&str; 2]; 2] = [
    ["nvidia.com/cuda.runtime-version.major", "nvidia.com/cuda.runtime.major"],
    ["nvidia.com/cuda.runtime-version.minor", "nvidia.com/cuda.runtime.minor"],
];

/// A label of a `NodeFeature` object, the node's name: Node Feature Discovery reads of it whose features they are.
pub const NFD_NODE_NAME: &str = "nfd.node.kubernetes.io/node-name";
/// An annotation of the node in which Node Feature Discovery notes its own labels. One of several instances notes them under this
/// key with its name and a dot in front.
pub const NFD_LABELS: &str = "nfd.node.kubernetes.io/feature-labels";
