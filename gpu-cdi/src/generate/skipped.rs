use std::fmt;

use gpu_core::{Gpu, GpuUuid, MigDevice, MigUuid};
use serde::{Deserialize, Serialize};

/// A GPU or a MIG device that a spec does not offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkippedDevice {
    /// NVML's index of the GPU.
    pub index: u32,
    /// The GPU's UUID.
    pub uuid: GpuUuid,
    /// The MIG device of this GPU; `None` if it is the GPU as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<SkippedMig>,
    /// Why.
    pub reason: SkipReason,
}

/// Which MIG device of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkippedMig {
    /// Its slot.
    pub index: u32,
    /// Its UUID.
    pub uuid: MigUuid,
}

/// Why a device is not offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SkipReason {
    /// The GPU is in MIG mode and not divided: it cannot be used whole, and there is no part of it to use.
    NoMigDevices,
    /// It is there for a screen and not for programs: the display GPU of a DGX Station, known by its name.
    DisplayOnly {
        /// The name.
        name: String,
    },
    /// A device node of it does not exist, so that no container with it could use it: `nvidia-modprobe` makes it.
    DeviceNodeMissing {
        /// The node, beneath the device root.
        path: String,
    },
    /// What is in the place of a device node of it is no device: a copy of a driver root, made without the right to make
    /// devices, has plain files there.
    NotADevice {
        /// The node, beneath the device root.
        path: String,
        /// What is there, in words.
        what: String,
    },
    /// The driver does not tell the number of the node of a MIG instance: the instance is gone, or `/proc` is hidden.
    CapabilityUnknown {
        /// The instance's capability, e.g. `gpu0/gi1/ci0/access`.
        name: String,
    },
    /// No naming strategy that was asked for has a name for it: UUIDs of MIG devices before driver 470 are no CDI names.
    NoName,
}

impl SkippedDevice {
    pub(super) fn gpu(gpu: &Gpu, reason: SkipReason) -> Self {
        Self {
            index: gpu.index,
            uuid: gpu.uuid.clone(),
            mig: None,
            reason,
        }
    }

    pub(super) fn mig(gpu: &Gpu, device: &MigDevice, reason: SkipReason) -> Self {
        Self {
            mig: Some(SkippedMig {
                index: device.index,
                uuid: device.uuid.clone(),
            }),
            ..Self::gpu(gpu, reason)
        }
    }
}

impl fmt::Display for SkippedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.mig {
            None => write!(f, "GPU {} ({}) {}", self.index, self.uuid, self.reason),
            Some(mig) => {
                let SkippedMig { index, uuid } = mig;
                write!(f, "MIG device {}:{index} ({uuid}) {}", self.index, self.reason)
            }
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMigDevices => f.write_str("is in MIG mode and has no MIG devices"),
            Self::DisplayOnly { name } => write!(f, "is a `{name}`, which is not for programs"),
            Self::DeviceNodeMissing { path } => write!(f, "has no device node `{path}`"),
            Self::NotADevice { path, what } => write!(f, "has no device node: `{path}` is {what}"),
            Self::CapabilityUnknown { name } => write!(f, "has no capability `{name}` in /proc/driver"),
            Self::NoName => f.write_str("has no name that CDI takes"),
        }
    }
}
