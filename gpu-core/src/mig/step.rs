use std::fmt;

use serde::{Deserialize, Serialize};

use super::{MigProfile, Placement};
use crate::GpuUuid;

/// One thing to do to a GPU's partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Step {
    /// Turns MIG mode on or off. Turning it on or off on an Ampere GPU resets it.
    SetMode {
        /// Which GPU.
        gpu: GpuUuid,
        /// Whether the mode is on afterwards.
        enabled: bool,
    },
    /// Destroys a compute instance, and with it its MIG device.
    DestroyComputeInstance {
        /// Which GPU.
        gpu: GpuUuid,
        /// Which GPU instance, by number.
        gpu_instance: u32,
        /// Which compute instance, by number.
        compute_instance: u32,
    },
    /// Destroys a GPU instance that has no compute instances.
    DestroyGpuInstance {
        /// Which GPU.
        gpu: GpuUuid,
        /// Which GPU instance, by number.
        gpu_instance: u32,
    },
    /// Makes a GPU instance.
    CreateGpuInstance {
        /// On which GPU.
        gpu: GpuUuid,
        /// Of which profile of that GPU.
        profile: MigProfile,
        /// Where, in memory slices.
        placement: Placement,
    },
    /// Makes a compute instance, and with it a MIG device.
    CreateComputeInstance {
        /// On which GPU.
        gpu: GpuUuid,
        /// In which GPU instance: the one that lies there. Its number is not known before it is made.
        gpu_instance_at: Placement,
        /// With how many compute slices.
        slices: u32,
        /// From which compute slice of the GPU instance on; the driver chooses where it is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start: Option<u32>,
    },
}

impl Step {
    /// The GPU that it is about.
    pub fn gpu(&self) -> &GpuUuid {
        match self {
            Self::SetMode { gpu, .. }
            | Self::DestroyComputeInstance { gpu, .. }
            | Self::DestroyGpuInstance { gpu, .. }
            | Self::CreateGpuInstance { gpu, .. }
            | Self::CreateComputeInstance { gpu, .. } => gpu,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetMode { gpu, enabled } => {
                write!(f, "turn MIG mode of {gpu} {}", if *enabled { "on" } else { "off" })
            }
            Self::DestroyComputeInstance {
                gpu,
                gpu_instance,
                compute_instance,
            } => write!(
                f,
                "destroy compute instance {compute_instance} of GPU instance {gpu_instance} of {gpu}"
            ),
            Self::DestroyGpuInstance { gpu, gpu_instance } => write!(f, "destroy GPU instance {gpu_instance} of {gpu}"),
            Self::CreateGpuInstance {
                gpu,
                profile,
                placement,
            } => {
                write!(f, "create {profile} at {} of {gpu}", placement.start)
            }
            Self::CreateComputeInstance {
                gpu,
                gpu_instance_at,
                slices,
                start,
            } => {
                write!(f, "create a compute instance of {slices} slices")?;
                if let Some(start) = start {
                    write!(f, " from {start} on")?;
                }
                write!(f, " in the GPU instance at {} of {gpu}", gpu_instance_at.start)
            }
        }
    }
}
