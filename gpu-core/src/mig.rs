use serde::{Deserialize, Serialize};

mod layout;
mod plan;
mod profile;
mod step;

pub use self::{
    layout::Impossible,
    plan::{CheckedPlan, Plan, PlanError},
    profile::{MigProfile, ParseMigProfileError},
    step::Step,
};
use crate::MigUuid;

/// Multi-Instance GPU: the mode, what the board can be divided into, and what it is divided into.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Mig {
    /// The mode in force (`nvmlDeviceGetMigMode`).
    pub enabled: bool,
    /// The mode after the next reset.
    pub pending_enabled: bool,
    /// The GPU instances that the board offers, by NVML's constant.
    ///
    /// Also while the mode is off, where the driver answers then (580 does, 535 does not).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<GpuInstanceProfile>,
    /// The GPU instances that exist, by placement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_instances: Vec<GpuInstance>,
    /// The devices that CUDA can use, one for each compute instance, by slot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<MigDevice>,
}

impl Mig {
    /// The profile that has this driver's number.
    pub fn profile(&self, id: u32) -> Option<&GpuInstanceProfile> {
        self.profiles.iter().find(|profile| profile.id == id)
    }

    /// The profile of this name.
    pub fn profile_named(&self, name: &MigProfile) -> Option<&GpuInstanceProfile> {
        self.profiles.iter().find(|profile| profile.name == *name)
    }

    /// The GPU instance that has this number.
    pub fn gpu_instance(&self, id: u32) -> Option<&GpuInstance> {
        self.gpu_instances.iter().find(|instance| instance.id == id)
    }
}

/// A kind of GPU instance that a board offers (`nvmlDeviceGetGpuInstanceProfileInfo`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GpuInstanceProfile {
    /// Its name, computed from the board's memory as NVIDIA's own tools do. Names differ between boards with one PCI id.
    pub name: MigProfile,
    /// The name that the driver gives it, where it gives one (`nvmlDeviceGetGpuInstanceProfileInfoV`, `name`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_name: Option<String>,
    /// The driver's number, which instances carry and creation takes: 19 for `1g` on most boards (`id`).
    pub id: u32,
    /// NVML's constant, `NVML_GPU_INSTANCE_PROFILE_*`, which is another number than [`id`](Self::id).
    pub constant: u32,
    /// Compute slices (`sliceCount`).
    pub slices: u32,
    /// How many can exist at once on an empty GPU (`instanceCount`).
    pub max_instances: u32,
    /// Memory in MiB (`memorySizeMB`).
    pub memory_mib: u64,
    /// Streaming multiprocessors (`multiprocessorCount`).
    pub multiprocessors: u32,
    /// What else an instance has of its own.
    pub engines: Engines,
    /// Whether instances can reach other GPUs' memory directly (`isP2pSupported`).
    pub p2p: bool,
    /// Whether instances can draw (`capabilities`); unknown on drivers that lack the third version of the struct.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graphics: Option<bool>,
    /// Where an instance can lie on an empty GPU (`nvmlDeviceGetGpuInstancePossiblePlacements_v2`), by start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placements: Vec<Placement>,
}

/// The engines of a profile or a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Engines {
    /// Copy engines (`copyEngineCount`).
    pub copy_engines: u32,
    /// Video decoders (`decoderCount`).
    pub decoders: u32,
    /// Video encoders (`encoderCount`).
    pub encoders: u32,
    /// JPEG decoders (`jpegCount`).
    pub jpeg_engines: u32,
    /// Optical flow accelerators (`ofaCount`).
    pub ofa_engines: u32,
}

/// A run of slices: memory slices for a GPU instance, compute slices for a compute instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// The first slice, from 0.
    pub start: u32,
    /// How many.
    pub size: u32,
}

impl Placement {
    /// Whether the two have a slice in common.
    pub fn overlaps(self, other: Self) -> bool {
        let end = |placement: Self| placement.start.saturating_add(placement.size);
        self.start < end(other) && other.start < end(self)
    }
}

/// A GPU instance: memory, and engines that compute instances share (`nvmlGpuInstanceGetInfo`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GpuInstance {
    /// Its number on this GPU, which its capability file has in its path (`id`). It says nothing of the placement.
    pub id: u32,
    /// The driver's number of its profile (`profileId`), as in [`GpuInstanceProfile::id`].
    pub profile_id: u32,
    /// The name of its profile; absent where the board does not say what it offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<MigProfile>,
    /// The memory slices it lies on (`placement`).
    pub placement: Placement,
    /// Its compute instances, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compute_instances: Vec<ComputeInstance>,
}

/// A compute instance: the multiprocessors of a GPU instance, or a part of them (`nvmlComputeInstanceGetInfo_v2`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ComputeInstance {
    /// Its number within the GPU instance (`id`).
    pub id: u32,
    /// The driver's number of its profile (`profileId`).
    pub profile_id: u32,
    /// The compute slices of the GPU instance it has (`placement`).
    pub placement: Placement,
}

/// What CUDA sees of a GPU in MIG mode: one compute instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MigDevice {
    /// Its slot (`nvmlDeviceGetMigDeviceHandleByIndex`). Slots may be empty, and a device may come to another one.
    pub index: u32,
    /// Its identifier; another one when the instance is made anew (`nvmlDeviceGetUUID`).
    pub uuid: MigUuid,
    /// The GPU instance it belongs to (`nvmlDeviceGetGpuInstanceId`).
    pub gpu_instance: u32,
    /// The compute instance that it is (`nvmlDeviceGetComputeInstanceId`).
    pub compute_instance: u32,
    /// Its profile's name, `1c.3g.71gb` where the GPU instance has more compute slices than it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<MigProfile>,
    /// The name that the driver gives it, e.g. `NVIDIA H200 MIG 1g.18gb` (`nvmlDeviceGetName`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it has; absent where the driver does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<MigAttributes>,
}

/// What a MIG device has (`nvmlDeviceGetAttributes_v2`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MigAttributes {
    /// Memory of the GPU instance in MiB (`memorySizeMB`).
    pub memory_mib: u64,
    /// Streaming multiprocessors (`multiprocessorCount`).
    pub multiprocessors: u32,
    /// Compute slices of the GPU instance (`gpuInstanceSliceCount`).
    pub gpu_slices: u32,
    /// Compute slices of the compute instance (`computeInstanceSliceCount`).
    pub compute_slices: u32,
    /// The engines, shared with the other compute instances of the GPU instance.
    pub engines: Engines,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_that_share_a_slice_overlap() {
        #[track_caller]
        fn check(one: (u32, u32), other: (u32, u32), expected: bool) {
            let placement = |(start, size)| Placement { start, size };
            assert_eq!(placement(one).overlaps(placement(other)), expected);
            assert_eq!(placement(other).overlaps(placement(one)), expected);
        }
        check((0, 4), (4, 4), false);
        check((0, 4), (3, 1), true);
        check((0, 8), (6, 2), true);
        check((6, 1), (7, 1), false);
    }
}
