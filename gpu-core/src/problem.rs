use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Gpu, GpuUuid, PciAddress};

/// Something of a node that could not be read while the rest could.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Problem {
    /// NVML's index of the GPU.
    pub index: u32,
    /// Its UUID, where that much could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<GpuUuid>,
    /// Its PCI address, where that much could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<PciAddress>,
    /// What it means for the GPU.
    pub kind: ProblemKind,
    /// The call that failed, e.g. `nvmlDeviceGetHandleByIndex_v2`.
    pub call: String,
    /// What the driver answered.
    pub message: String,
}

impl Problem {
    /// Whether it is why this GPU, which an earlier reading has, is not in the list. One that is gone entirely is known by its index
    /// alone.
    pub fn hides(&self, gpu: &Gpu) -> bool {
        let same = match (&self.uuid, &self.pci) {
            (Some(uuid), _) => *uuid == gpu.uuid,
            (None, Some(address)) => *address == gpu.pci.address,
            (None, None) => self.index == gpu.index,
        };
        same && self.kind != ProblemKind::Incomplete
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {}", self.index)?;
        match (&self.uuid, &self.pci) {
            (Some(uuid), Some(pci)) => write!(f, " ({uuid}, {pci})")?,
            (Some(uuid), None) => write!(f, " ({uuid})")?,
            (None, Some(pci)) => write!(f, " ({pci})")?,
            (None, None) => {}
        }
        write!(f, " {}: {}: {}", self.kind, self.call, self.message)
    }
}

/// What a [`Problem`] means for its GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProblemKind {
    /// It fell off the bus or needs a reset; it is not in the list of GPUs.
    Lost,
    /// The caller may not look at it; it is not in the list of GPUs.
    NoPermission,
    /// A call about it has not returned for longer than was allowed; it is not in the list of GPUs.
    Hung,
    /// It answered with another error where an answer is needed; it is not in the list of GPUs.
    Unreadable,
    /// It is in the list of GPUs without the value that this call should have given.
    Incomplete,
}

impl fmt::Display for ProblemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "is lost",
            Self::NoPermission => "may not be read",
            Self::Hung => "does not answer",
            Self::Unreadable => "cannot be read",
            Self::Incomplete => "is read incompletely",
        })
    }
}
