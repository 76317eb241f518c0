use std::collections::BTreeMap;

use gpu_core::{Gpu, GpuUuid, Inventory};
use serde::{Deserialize, Serialize};

use super::Selection;
use crate::mig::{Compute, Held, Instance, Part, Placement, Wanted, live};

/// A node's MIG modes and instances with every place, in the vendor's JSON (mig-parted v0.15.0, `pkg/types/mig_state.go`).
///
/// `ProfileID`s are NVML's constants. The vendor's file does not say where compute instances lie in their GPU instance; they
/// are made largest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct Checkpoint {
    version: String,
    mig_state: MigState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct MigState {
    #[serde(default, deserialize_with = "null_is_empty")]
    devices: Vec<Device>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Device {
    #[serde(rename = "UUID")]
    uuid: String,
    mig_mode: u32,
    #[serde(default, deserialize_with = "null_is_empty")]
    gpu_instances: Vec<GpuInstance>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct GpuInstance {
    #[serde(rename = "ProfileID")]
    profile_id: u32,
    placement: StartAndSize,
    #[serde(default, deserialize_with = "null_is_empty")]
    compute_instances: Vec<ComputeInstance>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct StartAndSize {
    start: u32,
    size: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct ComputeInstance {
    #[serde(rename = "ProfileID")]
    profile_id: u32,
    #[serde(rename = "EngProfileID")]
    eng_profile_id: u32,
}

/// Go writes a list that was never made as `null`.
fn null_is_empty<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Why a checkpoint cannot be taken or restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The text is not a checkpoint's.
    #[error("it is no checkpoint: {message}")]
    Syntax {
        /// What is wrong, and where.
        message: String,
    },
    /// A version that is not `v1`.
    #[error("unknown version: {version}")]
    Version {
        /// The one that is written.
        version: String,
    },
    /// The node has no such GPU, or it cannot be read.
    #[error("GPU `{uuid}` is not on this node")]
    NoSuchGpu {
        /// What the checkpoint names.
        uuid: String,
    },
    /// The checkpoint has a GPU twice.
    #[error("GPU `{uuid}` is in it twice")]
    Twice {
        /// The GPU.
        uuid: String,
    },
    /// The GPU is there and cannot be what is written.
    #[error("GPU {index}: {reason}")]
    Gpu {
        /// Its index.
        index: u32,
        /// Why not.
        reason: String,
    },
}

impl Checkpoint {
    /// The GPUs of a node as they are. Those that cannot do MIG are left out.
    ///
    /// # Errors
    /// If the driver does not tell the profile of an instance.
    pub fn take(inventory: &Inventory) -> Result<Self, CheckpointError> {
        let capable = inventory.gpus.iter().filter_map(|gpu| Some((gpu, gpu.mig.as_ref()?)));
        let devices = capable.map(|(gpu, mig)| {
            let instances = mig.gpu_instances.iter().map(|instance| {
                let profile = mig.profile(instance.profile_id).ok_or_else(|| CheckpointError::Gpu {
                    index: gpu.index,
                    reason: format!("the driver does not tell the profile of GPU instance {}", instance.id),
                })?;
                let compute = instance.compute_instances.iter();
                Ok(GpuInstance {
                    profile_id: profile.constant,
                    placement: StartAndSize {
                        start: instance.placement.start,
                        size: instance.placement.size,
                    },
                    compute_instances: compute
                        .map(|compute| ComputeInstance {
                            profile_id: constant(compute.placement.size),
                            eng_profile_id: 0,
                        })
                        .collect(),
                })
            });
            Ok(Device {
                uuid: gpu.uuid.to_string(),
                mig_mode: mig.enabled.into(),
                gpu_instances: instances.collect::<Result<_, _>>()?,
            })
        });
        Ok(Self {
            version: "v1".to_owned(),
            mig_state: MigState {
                devices: devices.collect::<Result<_, _>>()?,
            },
        })
    }

    /// Reads a checkpoint's text.
    ///
    /// # Errors
    /// If it is not one, or of another version.
    pub fn parse(text: &str) -> Result<Self, CheckpointError> {
        let checkpoint: Self = serde_json::from_str(text).map_err(|error| CheckpointError::Syntax {
            message: error.to_string(),
        })?;
        if checkpoint.version == "v1" {
            Ok(checkpoint)
        } else {
            Err(CheckpointError::Version {
                version: checkpoint.version,
            })
        }
    }

    /// The text, as the vendor writes it: one line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What the checkpoint asks of the GPUs of a node, each by its UUID; GPUs that it does not name are left as they are.
    ///
    /// # Errors
    /// If a GPU is not there, is named twice, or has no such profile at that place.
    pub fn select(&self, inventory: &Inventory) -> Result<Selection, CheckpointError> {
        let mut wanted = BTreeMap::new();
        for device in &self.mig_state.devices {
            let uuid: Option<GpuUuid> = device.uuid.parse().ok();
            let gpu = uuid
                .and_then(|uuid| inventory.gpu(&uuid))
                .ok_or_else(|| CheckpointError::NoSuchGpu {
                    uuid: device.uuid.clone(),
                })?;
            if wanted.insert(gpu.uuid.clone(), device.wanted(gpu)?).is_some() {
                let uuid = device.uuid.clone();
                return Err(CheckpointError::Twice { uuid });
            }
        }
        Ok(Selection {
            wanted,
            notes: Vec::new(),
        })
    }
}

impl Device {
    fn wanted(&self, gpu: &Gpu) -> Result<Wanted, CheckpointError> {
        let refuse = |reason: String| CheckpointError::Gpu {
            index: gpu.index,
            reason,
        };
        let refuse_board = |error: crate::mig::BoardError| refuse(error.to_string());
        match (self.mig_mode, self.gpu_instances.is_empty()) {
            (0, true) => return Ok(Wanted::Disabled),
            (0, false) => return Err(refuse("the checkpoint has instances and MIG mode off".to_owned())),
            (1, _) => {}
            (mode, _) => return Err(refuse(format!("there is no MIG mode {mode}"))),
        }
        let board = live::board(gpu).map_err(refuse_board)?;
        let board = board.ok_or_else(|| refuse("it cannot do MIG, or its driver does not tell how".to_owned()))?;
        let instances = self.gpu_instances.iter().map(|instance| {
            let mut specs = board.profiles().iter();
            let spec = specs.find(|spec| spec.nvml_constant == instance.profile_id);
            let spec = spec.ok_or_else(|| refuse(format!("it has no profile {}", instance.profile_id)))?;
            let StartAndSize { start, size } = instance.placement;
            let at = u8::try_from(start).ok().zip(u8::try_from(size).ok());
            let nowhere = || refuse(format!("`{}` at {start}:{size} is beyond any GPU", spec.profile));
            let (start, size) = at.ok_or_else(nowhere)?;
            let at = Placement { start, size };
            let mut sizes = Vec::new();
            for compute in &instance.compute_instances {
                let size = slices(compute.profile_id).filter(|_| compute.eng_profile_id == 0);
                let unknown = || refuse(format!("there is no compute instance profile {}", compute.profile_id));
                sizes.push(size.ok_or_else(unknown)?);
            }
            sizes.sort_unstable_by(|a, b| b.cmp(a));
            let whole = spec.profile.slices();
            let too_much = || {
                refuse(format!(
                    "the compute instances of `{}` at {at} do not fit",
                    spec.profile
                ))
            };
            let parts = packed(whole, &sizes).ok_or_else(too_much)?;
            Ok(Held {
                pinned: false,
                compute: Compute::of(&spec.profile, parts),
                instance: Instance {
                    placement: at,
                    profile: spec.profile.clone(),
                },
            })
        });
        Ok(Wanted::Exactly(instances.collect::<Result<_, _>>()?))
    }
}

/// Where the driver puts compute instances of these sizes, made one after the other.
fn packed(whole: u32, sizes: &[u32]) -> Option<Vec<Part>> {
    if sizes.is_empty() {
        return Some(Vec::new());
    }
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for &size in sizes {
        *counts.entry(size).or_default() += 1;
    }
    let wanted: Vec<_> = counts.into_iter().rev().collect();
    let division = crate::mig::compute::divide(whole, &[Vec::new()], &wanted)?;
    let mut parts = division.changes.into_iter().next()?.1;
    parts.sort_unstable();
    Some(parts)
}

/// `NVML_COMPUTE_INSTANCE_PROFILE_*` of a size.
fn constant(slices: u32) -> u32 {
    match slices {
        1..=4 => slices - 1,
        7 => 4,
        8 => 5,
        other => other,
    }
}

/// The size of `NVML_COMPUTE_INSTANCE_PROFILE_*`, the special ones (`1_SLICE_REV1`, `7_SLICE_NVL`) included.
fn slices(constant: u32) -> Option<u32> {
    match constant {
        0..=3 => Some(constant + 1),
        4 | 8 => Some(7),
        5 => Some(8),
        6 => Some(6),
        7 => Some(1),
        _ => None,
    }
}
