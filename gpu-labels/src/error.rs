use gpu_core::PciAddress;

/// Why a node gets no labels at all: those that it has should stay.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration shares GPUs by MPS, and one of them is in MIG mode. The vendor's plugin refuses such a node too.
    #[error("MPS sharing is not supported for mig devices: GPU {index} is in MIG mode")]
    MpsOnMig {
        /// NVML's index of the first such GPU.
        index: u32,
    },
}

/// What a label could not say, or says of some only. For the log, when it is new.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[non_exhaustive]
pub enum Remark {
    /// Several models: the labels of GPUs speak of one of them.
    #[error("the GPUs are of {models} models: the labels speak of `{chosen}`")]
    SeveralModels {
        /// How many.
        models: usize,
        /// The one that the labels are about.
        chosen: String,
    },
    /// GPUs that should be there cannot be read: the labels speak of the others.
    #[error("{gpus} GPUs cannot be read: the labels speak of the others")]
    Degraded {
        /// How many.
        gpus: usize,
    },
    /// MIG devices are not such that the `single` strategy can offer them.
    #[error("MIG strategy `single` cannot be followed: {reason}")]
    InvalidSingle {
        /// Why.
        reason: &'static str,
    },
    /// GPUs are of several fabrics or cliques, so that the node is of none.
    #[error("the GPUs are of several NVLink cliques: {}", cliques.join(", "))]
    SeveralCliques {
        /// Each once, in order.
        cliques: Vec<String>,
    },
    /// A MIG profile whose name makes no resource, or no key.
    #[error("MIG devices of profile `{profile}` get no labels: {reason}")]
    Profile {
        /// Its name.
        profile: String,
        /// Why.
        reason: String,
    },
    /// A MIG device of which the driver says neither profile nor attributes.
    #[error("the driver does not say what the MIG devices of GPU {index} are")]
    UnknownMigDevice {
        /// NVML's index of the GPU.
        index: u32,
    },
    /// Whether a GPU is a virtual one cannot be seen: its configuration space is for the privileged.
    #[error("whether `{address}` is a virtual GPU cannot be seen: {reason}")]
    VgpuUnknown {
        /// The first such GPU.
        address: PciAddress,
        /// Why.
        reason: String,
    },
}
