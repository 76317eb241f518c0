use std::fmt;

use gpu_core::GpuUuid;

use super::MaxClients;
use crate::config::{NotThere, ResourceName};

/// A [`Result`](std::result::Result) whose error is this module's [`Error`] unless said otherwise.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why GPUs cannot be shared as configured. Where the vendor's programs have words for it, they are those.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A GPU is in MIG mode. Its devices have memory of their own: share them by time-slicing, or take MIG mode off.
    #[error("sharing using MPS is not supported for MIG devices: GPU {index} ({uuid}) is in MIG mode")]
    Mig {
        /// NVML's index.
        index: u32,
        /// Its UUID.
        uuid: GpuUuid,
    },
    /// More containers than the MPS server of a GPU takes clients.
    #[error(
        "invalid MPS configuration: invalid device maximum allowed replicas exceeded: {replicas} > {most} on GPU {index} \
         ({uuid})"
    )]
    TooManyReplicas {
        /// NVML's index.
        index: u32,
        /// Its UUID.
        uuid: GpuUuid,
        /// How many are configured.
        replicas: u32,
        /// How many there can be.
        most: MaxClients,
    },
}

/// What a person should know of a [`Plan`](super::Plan). For the log, once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remark {
    /// The configuration shares a resource that this node does not have.
    NoSuchResource {
        /// The resource.
        resource: ResourceName,
    },
    /// The configuration shares GPUs of a resource that this node does not have.
    NotThere {
        /// The resource.
        resource: ResourceName,
        /// Which.
        what: NotThere,
    },
    /// A GPU older than Volta, or of unknown make: its clients are not limited.
    NoLimits {
        /// NVML's index.
        index: u32,
        /// Its UUID.
        uuid: GpuUuid,
    },
    /// The size of a GPU's memory is not known: what its clients take of it is not limited.
    NoMemoryLimit {
        /// NVML's index.
        index: u32,
        /// Its UUID.
        uuid: GpuUuid,
    },
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchResource { resource } => {
                write!(f, "sharing.mps names `{resource}`, of which this node has no device")
            }
            Self::NotThere { resource, what } => write!(f, "not all of `{resource}` can be shared: {what}"),
            Self::NoLimits { index, uuid } => write!(
                f,
                "GPU {index} ({uuid}) is older than Volta: its MPS clients are not limited in memory and threads"
            ),
            Self::NoMemoryLimit { index, uuid } => write!(
                f,
                "the size of the memory of GPU {index} ({uuid}) is not known: its MPS clients are not limited in memory"
            ),
        }
    }
}
