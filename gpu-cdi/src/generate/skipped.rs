use std::fmt;

use gpu_core::{Gpu, GpuUuid};
use serde::{Deserialize, Serialize};

/// A GPU that a spec does not offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkippedGpu {
    /// NVML's index.
    pub index: u32,
    /// Its UUID.
    pub uuid: GpuUuid,
    /// Why.
    pub reason: SkipReason,
}

/// Why a GPU is not offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SkipReason {
    /// It is partitioned: it cannot be used whole, and MIG devices are not described yet.
    MigEnabled,
    /// It is there for a screen and not for programs: the display GPU of a DGX Station, known by its name.
    DisplayOnly {
        /// The name.
        name: String,
    },
    /// Its device node does not exist, so that no container with it could start.
    DeviceNodeMissing {
        /// The node, beneath the device root.
        path: String,
    },
}

impl SkippedGpu {
    pub(super) fn new(gpu: &Gpu, reason: SkipReason) -> Self {
        Self {
            index: gpu.index,
            uuid: gpu.uuid.clone(),
            reason,
        }
    }
}

impl fmt::Display for SkippedGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {} ({}) {}", self.index, self.uuid, self.reason)
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MigEnabled => f.write_str("has MIG enabled, and MIG devices are not described yet"),
            Self::DisplayOnly { name } => write!(f, "is a `{name}`, which is not for programs"),
            Self::DeviceNodeMissing { path } => write!(f, "has no device node `{path}`"),
        }
    }
}
