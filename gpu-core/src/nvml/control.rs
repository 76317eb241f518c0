//! Taking the steps of a [`CheckedPlan`], and back.

use std::{collections::BTreeMap, fmt};

use nvml_wrapper::{Device, error::NvmlError};
use nvml_wrapper_sys::bindings::{nvmlComputeInstancePlacement_t, nvmlGpuInstancePlacement_t};

use super::{
    CallRefused, Library, Refusal,
    raw::{
        self,
        mig::{self as calls, COMPUTE_INSTANCE_PROFILES},
    },
};
use crate::{CheckedPlan, GpuUuid, MigUuid, Placement, Step};

/// What a step has made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Done {
    /// Nothing: the mode was changed, or something was destroyed.
    Nothing,
    /// A GPU instance.
    GpuInstance {
        /// Its number.
        id: u32,
    },
    /// A compute instance, which is a MIG device.
    ComputeInstance {
        /// The number of its GPU instance.
        gpu_instance: u32,
        /// Its number.
        id: u32,
        /// The MIG device's UUID, where the driver gave it.
        uuid: Option<MigUuid>,
    },
}

/// A plan that was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyError {
    /// The place of the step that failed in the plan, from 0. Those before it were taken.
    pub number: usize,
    /// The step.
    pub step: Step,
    /// Why it failed.
    pub refused: CallRefused,
    /// What could not be taken back, in the order in which it was tried. Empty: the GPUs are divided as before, though
    /// instances that were destroyed and made again have other UUIDs.
    pub left: Vec<NotTakenBack>,
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.step, self.refused)?;
        match self.left.as_slice() {
            [] => write!(f, "; all {} steps before it were taken back", self.number),
            left => {
                let left: Vec<_> = left
                    .iter()
                    .map(|left| format!("{} ({})", left.step, left.refused))
                    .collect();
                write!(f, "; not taken back: {}", left.join("; "))
            }
        }
    }
}

impl std::error::Error for ApplyError {}

/// A step that was taken and could not be taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotTakenBack {
    /// The step.
    pub step: Step,
    /// Why not.
    pub refused: CallRefused,
}

impl Library {
    /// Takes the steps of a plan, one after the other. It needs the rights of root.
    ///
    /// Where one fails, those before it are taken back in reverse order. The calls are made on this thread, and a change of
    /// mode may take seconds. Handles and minor numbers may be other ones after it: read the inventory anew.
    ///
    /// # Errors
    /// The step that failed, why, and what could not be taken back.
    pub fn apply(&self, plan: &CheckedPlan) -> Result<Vec<Done>, Box<ApplyError>> {
        let mut executor = Executor::new(self, plan);
        let mut done = Vec::new();
        for (number, step) in plan.steps().iter().enumerate() {
            match executor.take(step) {
                Ok(made) => done.push(made),
                Err(refused) => {
                    return Err(Box::new(ApplyError {
                        number,
                        step: step.clone(),
                        refused,
                        left: executor.take_back(&plan.steps()[..number]),
                    }));
                }
            }
        }
        Ok(done)
    }

    /// Asks for a MIG mode, and where it takes a reset leaves it noted for that: [`apply`](Self::apply) takes it back then.
    ///
    /// It needs the rights of root. `None`: the mode is in force. `Some`: it will be after a reset or reboot, and why.
    ///
    /// # Errors
    /// If the driver does not take the request at all.
    pub fn request_mig_mode(&self, gpu: &GpuUuid, enabled: bool) -> Result<Option<Refusal>, CallRefused> {
        let device = self.nvml.device_by_uuid(gpu.as_str());
        let device = device.map_err(refused("nvmlDeviceGetHandleByUUID"))?;
        match set_mode(&device, enabled) {
            Ok(()) => Ok(None),
            Err(CallRefused { refusal, .. }) if matches!(refusal, Refusal::ResetRequired | Refusal::InUse) => {
                let mode = device.mig_mode().map_err(refused("nvmlDeviceGetMigMode"))?;
                if (mode.pending != 0) == enabled {
                    Ok(Some(refusal))
                } else {
                    Err(CallRefused {
                        call: "nvmlDeviceSetMigMode",
                        refusal,
                    })
                }
            }
            Err(error) => Err(error),
        }
    }
}

/// How a step that was taken is taken back.
enum Undo {
    SetMode(bool),
    DestroyGpuInstance {
        at: Placement,
    },
    DestroyComputeInstance {
        at: Placement,
        id: u32,
    },
    CreateGpuInstance {
        at: Placement,
        profile_id: u32,
    },
    CreateComputeInstance {
        at: Placement,
        profile_id: u32,
        placement: Placement,
    },
}

struct Executor<'l> {
    library: &'l Library,
    /// The numbers of the GPU instances by where they lie, which they keep while numbers change.
    numbers: BTreeMap<(GpuUuid, Placement), u32>,
    /// The drivers' numbers of profiles, by name.
    profiles: BTreeMap<(GpuUuid, String), u32>,
    undo: Vec<(GpuUuid, Undo)>,
}

impl<'l> Executor<'l> {
    fn new(library: &'l Library, plan: &CheckedPlan) -> Self {
        let gpus = plan.existing();
        let numbers = gpus.iter().flat_map(|(gpu, mig)| {
            let instances = mig.gpu_instances.iter();
            instances.map(|instance| ((gpu.clone(), instance.placement), instance.id))
        });
        let profiles = gpus.iter().flat_map(|(gpu, mig)| {
            let profiles = mig.profiles.iter();
            profiles.map(|profile| ((gpu.clone(), profile.name.to_string()), profile.id))
        });
        Self {
            library,
            numbers: numbers.collect(),
            profiles: profiles.collect(),
            undo: Vec::new(),
        }
    }

    fn device(&self, gpu: &GpuUuid) -> Result<Device<'l>, CallRefused> {
        let found = self.library.nvml.device_by_uuid(gpu.as_str());
        found.map_err(refused("nvmlDeviceGetHandleByUUID"))
    }

    fn take(&mut self, step: &Step) -> Result<Done, CallRefused> {
        let gpu = step.gpu();
        let device = self.device(gpu)?;
        let (done, undo) = match step {
            Step::SetMode { enabled, .. } => {
                let before = device.mig_mode().map_err(refused("nvmlDeviceGetMigMode"))?;
                let undo = Undo::SetMode(before.pending != 0);
                if let Err(error) = set_mode(&device, *enabled) {
                    // It may be noted for the next reset: that is taken back as well.
                    let _ = set_mode(&device, before.pending != 0);
                    return Err(error);
                }
                (Done::Nothing, undo)
            }
            Step::DestroyComputeInstance {
                gpu_instance,
                compute_instance,
                ..
            } => (
                Done::Nothing,
                destroy_compute(&device, *gpu_instance, *compute_instance)?,
            ),
            Step::DestroyGpuInstance { gpu_instance, .. } => {
                let (at, undo) = destroy_instance(&device, *gpu_instance)?;
                self.numbers.remove(&(gpu.clone(), at));
                (Done::Nothing, undo)
            }
            Step::CreateGpuInstance { profile, placement, .. } => {
                let key = (gpu.clone(), profile.to_string());
                let profile_id = *self
                    .profiles
                    .get(&key)
                    .ok_or(changed("nvmlDeviceGetGpuInstanceProfileInfo"))?;
                let id = create_instance(&device, profile_id, *placement)?;
                self.numbers.insert((gpu.clone(), *placement), id);
                (Done::GpuInstance { id }, Undo::DestroyGpuInstance { at: *placement })
            }
            Step::CreateComputeInstance {
                gpu_instance_at,
                slices,
                start,
                ..
            } => {
                let parent = self.instance_at(gpu, &device, *gpu_instance_at)?;
                let (id, uuid) = create_compute_of(parent, *slices, *start)?;
                let done = Done::ComputeInstance {
                    gpu_instance: self.number(gpu, *gpu_instance_at)?,
                    id,
                    uuid,
                };
                let undo = Undo::DestroyComputeInstance {
                    at: *gpu_instance_at,
                    id,
                };
                (done, undo)
            }
        };
        self.undo.push((gpu.clone(), undo));
        Ok(done)
    }

    /// Takes all back, and goes on where something does not work. `taken` are the steps, as many as were taken.
    fn take_back(&mut self, taken: &[Step]) -> Vec<NotTakenBack> {
        let mut left = Vec::new();
        for step in taken.iter().rev() {
            let Some((gpu, undo)) = self.undo.pop() else { break };
            if let Err(refused) = self.undo(&gpu, &undo) {
                left.push(NotTakenBack {
                    step: step.clone(),
                    refused,
                });
            }
        }
        left
    }

    fn undo(&mut self, gpu: &GpuUuid, undo: &Undo) -> Result<(), CallRefused> {
        let device = self.device(gpu)?;
        match *undo {
            Undo::SetMode(enabled) => set_mode(&device, enabled),
            Undo::DestroyGpuInstance { at } => {
                let id = self.number(gpu, at)?;
                self.numbers.remove(&(gpu.clone(), at));
                destroy_instance(&device, id).map(drop)
            }
            Undo::DestroyComputeInstance { at, id } => destroy_compute(&device, self.number(gpu, at)?, id).map(drop),
            Undo::CreateGpuInstance { at, profile_id } => {
                let id = create_instance(&device, profile_id, at)?;
                self.numbers.insert((gpu.clone(), at), id);
                Ok(())
            }
            Undo::CreateComputeInstance {
                at,
                profile_id,
                placement,
            } => {
                let parent = self.instance_at(gpu, &device, at)?;
                match create_compute(parent, profile_id, Some(placement.start), placement.size) {
                    // An older driver chooses by itself.
                    Err(error) if error.refusal == Refusal::NoFunction => {
                        create_compute(parent, profile_id, None, placement.size)
                    }
                    made => made,
                }
                .map(drop)
            }
        }
    }

    fn number(&self, gpu: &GpuUuid, at: Placement) -> Result<u32, CallRefused> {
        let number = self.numbers.get(&(gpu.clone(), at)).copied();
        number.ok_or(changed("nvmlDeviceGetGpuInstanceById"))
    }

    /// The GPU instance that lies there, if it still does.
    fn instance_at<'d>(
        &self,
        gpu: &GpuUuid,
        device: &'d Device<'d>,
        at: Placement,
    ) -> Result<calls::GpuInstance<'d>, CallRefused> {
        let instance = instance_by_id(device, self.number(gpu, at)?)?;
        match place_of(instance)? {
            (_, place) if place == at => Ok(instance),
            _ => Err(changed("nvmlGpuInstanceGetInfo")),
        }
    }
}

fn set_mode(device: &Device<'_>, enabled: bool) -> Result<(), CallRefused> {
    let call = "nvmlDeviceSetMigMode";
    let activation = calls::set_mode(device, enabled).map_err(refused(call))?;
    match Refusal::of_activation(activation) {
        None => Ok(()),
        Some(refusal) => Err(CallRefused { call, refusal }),
    }
}

fn instance_by_id<'d>(device: &'d Device<'d>, id: u32) -> Result<calls::GpuInstance<'d>, CallRefused> {
    calls::GpuInstance::by_id(device, id).map_err(refused("nvmlDeviceGetGpuInstanceById"))
}

/// The driver's number of its profile, and where it lies.
fn place_of(instance: calls::GpuInstance<'_>) -> Result<(u32, Placement), CallRefused> {
    let info = instance.info().map_err(refused("nvmlGpuInstanceGetInfo"))?;
    let place = Placement {
        start: info.placement.start,
        size: info.placement.size,
    };
    Ok((info.profileId, place))
}

fn create_instance(device: &Device<'_>, profile_id: u32, at: Placement) -> Result<u32, CallRefused> {
    let placement = nvmlGpuInstancePlacement_t {
        start: at.start,
        size: at.size,
    };
    let made = calls::GpuInstance::create(device, profile_id, placement)
        .map_err(refused("nvmlDeviceCreateGpuInstanceWithPlacement"))?;
    made.info().map(|info| info.id).map_err(|error| {
        // Without its number it could not be taken back later.
        let _ = made.destroy();
        refused("nvmlGpuInstanceGetInfo")(error)
    })
}

fn destroy_instance(device: &Device<'_>, id: u32) -> Result<(Placement, Undo), CallRefused> {
    let instance = instance_by_id(device, id)?;
    let (profile_id, at) = place_of(instance)?;
    instance.destroy().map_err(refused("nvmlGpuInstanceDestroy"))?;
    Ok((at, Undo::CreateGpuInstance { at, profile_id }))
}

fn destroy_compute(device: &Device<'_>, gpu_instance: u32, id: u32) -> Result<Undo, CallRefused> {
    let parent = instance_by_id(device, gpu_instance)?;
    let (_, at) = place_of(parent)?;
    let instance =
        calls::ComputeInstance::by_id(parent, id).map_err(refused("nvmlGpuInstanceGetComputeInstanceById"))?;
    let info = instance.info().map_err(refused("nvmlComputeInstanceGetInfo_v2"))?;
    instance.destroy().map_err(refused("nvmlComputeInstanceDestroy"))?;
    Ok(Undo::CreateComputeInstance {
        at,
        profile_id: info.profileId,
        placement: Placement {
            start: info.placement.start,
            size: info.placement.size,
        },
    })
}

/// Makes one of that many slices. Several profiles may have as many: the plain ones come first.
fn create_compute_of(
    parent: calls::GpuInstance<'_>,
    slices: u32,
    start: Option<u32>,
) -> Result<(u32, Option<MigUuid>), CallRefused> {
    let profile = COMPUTE_INSTANCE_PROFILES
        .filter_map(|constant| parent.compute_profile(constant).ok())
        .find(|profile| profile.sliceCount == slices);
    let profile = profile.ok_or(CallRefused {
        call: "nvmlGpuInstanceGetComputeInstanceProfileInfo",
        refusal: Refusal::NotSupported,
    })?;
    create_compute(parent, profile.id, start, slices)
}

fn create_compute(
    parent: calls::GpuInstance<'_>,
    profile_id: u32,
    start: Option<u32>,
    size: u32,
) -> Result<(u32, Option<MigUuid>), CallRefused> {
    let placement = start.map(|start| nvmlComputeInstancePlacement_t { start, size });
    let call = match placement {
        Some(_) => "nvmlGpuInstanceCreateComputeInstanceWithPlacement",
        None => "nvmlGpuInstanceCreateComputeInstance",
    };
    let made = calls::ComputeInstance::create(parent, profile_id, placement).map_err(refused(call))?;
    let info = made.info().map_err(|error| {
        // Without its number it could not be taken back later.
        let _ = made.destroy();
        refused("nvmlComputeInstanceGetInfo_v2")(error)
    })?;
    let uuid = raw::text::uuid(&made.device(&info)).ok();
    Ok((info.id, uuid.and_then(|uuid| uuid.parse().ok())))
}

pub(super) fn refused(call: &'static str) -> impl Fn(NvmlError) -> CallRefused {
    move |error| CallRefused {
        call,
        refusal: Refusal::of(&error),
    }
}

fn changed(call: &'static str) -> CallRefused {
    CallRefused {
        call,
        refusal: Refusal::Changed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_in_the_message() {
        let gpu: GpuUuid = "GPU-00000000-0000-0000-0000-000000000000".parse().unwrap();
        let step = |gpu_instance| Step::DestroyGpuInstance {
            gpu: gpu.clone(),
            gpu_instance,
        };
        let refused = |refusal| CallRefused {
            call: "nvmlGpuInstanceDestroy",
            refusal,
        };
        let error = ApplyError {
            number: 1,
            step: step(2),
            refused: refused(Refusal::InUse),
            left: [1, 0]
                .map(|instance| NotTakenBack {
                    step: step(instance),
                    refused: refused(Refusal::GpuLost),
                })
                .into(),
        };
        assert_eq!(
            error.to_string(),
            "cannot destroy GPU instance 2 of GPU-00000000-0000-0000-0000-000000000000: `nvmlGpuInstanceDestroy`: it is in use; \
             not taken back: destroy GPU instance 1 of GPU-00000000-0000-0000-0000-000000000000 (`nvmlGpuInstanceDestroy`: the \
             GPU is lost); destroy GPU instance 0 of GPU-00000000-0000-0000-0000-000000000000 (`nvmlGpuInstanceDestroy`: the GPU \
             is lost)"
        );
    }

    #[test]
    fn codes_without_a_name_in_the_wrapper_are_told_apart() {
        assert_eq!(
            Refusal::of(&NvmlError::UnexpectedVariant(23)),
            Refusal::InsufficientResources
        );
        assert_eq!(Refusal::of(&NvmlError::UnexpectedVariant(29)), Refusal::Other(29));
        assert_eq!(Refusal::of_activation(0), None);
        assert_eq!(Refusal::of_activation(16), Some(Refusal::ResetRequired));
    }
}
