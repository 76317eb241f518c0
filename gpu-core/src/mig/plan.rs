use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::{ComputeInstance, GpuInstance, Mig, MigProfile, Placement};
use crate::{GpuUuid, Inventory};

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

/// Steps in the order in which they are to be taken, not checked yet.
///
/// ```
/// use gpu_core::{Inventory, Plan};
///
/// let plan: Plan = serde_json::from_str(r#"{ "steps": [
///     { "destroy_gpu_instance": { "gpu": "GPU-7a675969-0a3d-4f9c-8a6e-1b2c3d4e5f60", "gpu_instance": 3 } } ] }"#)?;
/// let error = plan.check(&Inventory::default()).unwrap_err();
/// assert!(error.to_string().ends_with("there is no such GPU"), "{error}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
}

impl Plan {
    /// Takes the steps on paper, from what `inventory` says there is.
    ///
    /// What only the driver knows is not checked: whether processes use an instance, and whether engines that some profiles
    /// share suffice.
    ///
    /// # Errors
    /// The first step that cannot be taken, and why.
    pub fn check(self, inventory: &Inventory) -> Result<CheckedPlan, PlanError> {
        let mut gpus = BTreeMap::new();
        for (number, step) in self.steps.iter().enumerate() {
            let error = |reason| PlanError {
                number,
                step: step.clone(),
                reason,
            };
            let gpu = inventory.gpu(step.gpu()).ok_or_else(|| error(Impossible::NoSuchGpu))?;
            let mig = gpu.mig.as_ref().ok_or_else(|| error(Impossible::NoMig))?;
            let layout = gpus.entry(gpu.uuid.clone()).or_insert_with(|| Layout::of(mig));
            layout.take(mig, step).map_err(error)?;
        }
        let existing = gpus
            .keys()
            .filter_map(|uuid| Some((uuid.clone(), inventory.gpu(uuid)?.mig.clone()?)));
        Ok(CheckedPlan {
            existing: existing.collect(),
            steps: self.steps,
        })
    }
}

/// Steps that can be taken one after the other, by what was known when they were checked.
///
/// Only [`Plan::check`] makes one, and only this can be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedPlan {
    steps: Vec<Step>,
    /// What there was on the GPUs that it is about.
    existing: BTreeMap<GpuUuid, Mig>,
}

impl CheckedPlan {
    /// The steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    #[cfg(feature = "nvml")]
    pub(crate) fn existing(&self) -> &BTreeMap<GpuUuid, Mig> {
        &self.existing
    }
}

/// A step that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("step {}, {step}: {reason}", number + 1)]
pub struct PlanError {
    /// Its place in the plan, from 0.
    pub number: usize,
    /// The step.
    pub step: Step,
    /// Why not.
    pub reason: Impossible,
}

/// Why a step cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Impossible {
    /// The inventory has no GPU of this UUID, or could not read it.
    #[error("there is no such GPU")]
    NoSuchGpu,
    /// The GPU cannot be partitioned.
    #[error("the GPU has no MIG")]
    NoMig,
    /// The mode is off at this step.
    #[error("MIG mode is off")]
    ModeOff,
    /// The mode cannot be turned off while there are GPU instances.
    #[error("there are GPU instances left")]
    InstancesLeft,
    /// There is no such instance at this step.
    #[error("there is no such instance")]
    NoSuchInstance,
    /// The GPU instance has compute instances at this step.
    #[error("the GPU instance has compute instances left")]
    ComputeInstancesLeft,
    /// The board offers no such profile.
    #[error("the GPU has no such profile; it has {}", names(offered))]
    NoSuchProfile {
        /// Those that it offers.
        offered: Vec<MigProfile>,
    },
    /// Instances of the profile cannot lie there.
    #[error("it cannot lie there; it can at {}", starts(possible))]
    NoSuchPlacement {
        /// Where they can.
        possible: Vec<Placement>,
    },
    /// Something else lies there at this step.
    #[error("the slices from {} to {} are taken", taken.start, taken.start + taken.size.saturating_sub(1))]
    Taken {
        /// What lies there.
        taken: Placement,
    },
    /// There are as many of this profile as there can be.
    #[error("there can be no more than {most} of it")]
    TooMany {
        /// How many there can be.
        most: u32,
    },
    /// The GPU instance has fewer compute slices left.
    #[error("the GPU instance has {left} compute slices left")]
    TooFewSlices {
        /// How many.
        left: u32,
    },
}

fn names(profiles: &[MigProfile]) -> String {
    let names: Vec<_> = profiles.iter().map(ToString::to_string).collect();
    names.join(", ")
}

fn starts(placements: &[Placement]) -> String {
    let starts: Vec<_> = placements.iter().map(|placement| placement.start.to_string()).collect();
    starts.join(", ")
}

/// A GPU's partitions on paper.
struct Layout {
    enabled: bool,
    instances: Vec<GpuInstance>,
}

impl Layout {
    fn of(mig: &Mig) -> Self {
        Self {
            enabled: mig.enabled,
            instances: mig.gpu_instances.clone(),
        }
    }

    fn take(&mut self, mig: &Mig, step: &Step) -> Result<(), Impossible> {
        match step {
            Step::SetMode { enabled, .. } => self.set_mode(*enabled),
            Step::DestroyComputeInstance {
                gpu_instance,
                compute_instance,
                ..
            } => self.destroy_compute_instance(*gpu_instance, *compute_instance),
            Step::DestroyGpuInstance { gpu_instance, .. } => self.destroy_gpu_instance(*gpu_instance),
            Step::CreateGpuInstance { profile, placement, .. } => self.create_gpu_instance(mig, profile, *placement),
            Step::CreateComputeInstance {
                gpu_instance_at,
                slices,
                start,
                ..
            } => self.create_compute_instance(mig, *gpu_instance_at, *slices, *start),
        }
    }

    fn set_mode(&mut self, enabled: bool) -> Result<(), Impossible> {
        if !enabled && !self.instances.is_empty() {
            return Err(Impossible::InstancesLeft);
        }
        self.enabled = enabled;
        Ok(())
    }

    fn destroy_compute_instance(&mut self, gpu_instance: u32, id: u32) -> Result<(), Impossible> {
        let mut instances = self.instances.iter_mut();
        let parent = instances.find(|instance| instance.id == gpu_instance);
        let children = &mut parent.ok_or(Impossible::NoSuchInstance)?.compute_instances;
        let at = children.iter().position(|instance| instance.id == id);
        children.remove(at.ok_or(Impossible::NoSuchInstance)?);
        Ok(())
    }

    fn destroy_gpu_instance(&mut self, id: u32) -> Result<(), Impossible> {
        let at = self.instances.iter().position(|instance| instance.id == id);
        let at = at.ok_or(Impossible::NoSuchInstance)?;
        if !self.instances[at].compute_instances.is_empty() {
            return Err(Impossible::ComputeInstancesLeft);
        }
        self.instances.remove(at);
        Ok(())
    }

    fn create_gpu_instance(&mut self, mig: &Mig, name: &MigProfile, at: Placement) -> Result<(), Impossible> {
        if !self.enabled {
            return Err(Impossible::ModeOff);
        }
        let profile = mig.profile_named(name).ok_or_else(|| Impossible::NoSuchProfile {
            offered: mig.profiles.iter().map(|profile| profile.name.clone()).collect(),
        })?;
        if !profile.placements.contains(&at) {
            return Err(Impossible::NoSuchPlacement {
                possible: profile.placements.clone(),
            });
        }
        let others = || self.instances.iter().map(|instance| instance.placement);
        if let Some(taken) = others().find(|other| other.overlaps(at)) {
            return Err(Impossible::Taken { taken });
        }
        let same = self
            .instances
            .iter()
            .filter(|instance| instance.profile_id == profile.id);
        if u32::try_from(same.count()).unwrap_or(u32::MAX) >= profile.max_instances {
            return Err(Impossible::TooMany {
                most: profile.max_instances,
            });
        }
        self.instances.push(GpuInstance {
            id: Self::UNKNOWN,
            profile_id: profile.id,
            profile: Some(profile.name.clone()),
            placement: at,
            compute_instances: Vec::new(),
        });
        Ok(())
    }

    fn create_compute_instance(
        &mut self,
        mig: &Mig,
        parent: Placement,
        slices: u32,
        start: Option<u32>,
    ) -> Result<(), Impossible> {
        let mut instances = self.instances.iter_mut();
        let parent = instances.find(|instance| instance.placement == parent);
        let parent = parent.ok_or(Impossible::NoSuchInstance)?;
        let profile = mig.profile(parent.profile_id).ok_or(Impossible::NoSuchInstance)?;
        let children = &mut parent.compute_instances;
        let taken: u32 = children.iter().map(|instance| instance.placement.size).sum();
        let left = profile.slices.saturating_sub(taken);
        let end = start.unwrap_or(0).saturating_add(slices);
        if slices == 0 || slices > left || end > profile.slices {
            return Err(Impossible::TooFewSlices { left });
        }
        // Where the driver chooses, any start will do on paper: it is never compared.
        let placement = Placement {
            start: start.unwrap_or(Self::UNKNOWN),
            size: slices,
        };
        let mut others = children.iter().map(|instance| instance.placement);
        if let Some(taken) = others.find(|other| other.overlaps(placement)) {
            return Err(Impossible::Taken { taken });
        }
        children.push(ComputeInstance {
            id: Self::UNKNOWN,
            profile_id: Self::UNKNOWN,
            placement,
        });
        Ok(())
    }

    /// Stands for a number that the driver will give.
    const UNKNOWN: u32 = u32::MAX;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const GPU: &str = "GPU-00000000-0000-0000-0000-000000000000";

    /// An H100 of 80 GB with a 1g.10gb at 4, number 11, and its one compute instance.
    fn inventory(enabled: bool) -> Inventory {
        let profile = |name: &str, id: u32, slices: u32, size: u32, starts: &[u32], max: u32| {
            let placements: Vec<_> = starts
                .iter()
                .map(|start| json!({ "start": start, "size": size }))
                .collect();
            json!({
                "name": name, "id": id, "constant": 0, "slices": slices, "max_instances": max, "memory_mib": 1, "multiprocessors": 1,
                "engines": { "copy_engines": 1, "decoders": 1, "encoders": 0, "jpeg_engines": 0, "ofa_engines": 0 }, "p2p": false,
                "placements": placements,
            })
        };
        let profiles = [
            profile("1g.10gb", 19, 1, 1, &[0, 1, 2, 3, 4, 5, 6], 7),
            profile("1g.10gb+me", 20, 1, 1, &[0, 1, 2, 3, 4, 5, 6], 1),
            profile("3g.40gb", 9, 3, 4, &[0, 4], 2),
        ];
        let instances = [json!({
            "id": 11, "profile_id": 19, "profile": "1g.10gb", "placement": { "start": 4, "size": 1 },
            "compute_instances": [{ "id": 0, "profile_id": 0, "placement": { "start": 0, "size": 1 } }],
        })];
        serde_json::from_value(json!({ "gpus": [{
            "index": 0, "minor": 0, "uuid": GPU, "name": "NVIDIA H100", "pci": { "address": "0000:1a:00.0", "id": "10de:2330" },
            "mig": {
                "enabled": enabled, "pending_enabled": enabled, "profiles": profiles,
                "gpu_instances": if enabled { &instances[..] } else { &[] },
            },
        }] }))
        .unwrap()
    }

    fn create(profile: &str, start: u32, size: u32) -> Step {
        Step::CreateGpuInstance {
            gpu: GPU.parse().unwrap(),
            profile: profile.parse().unwrap(),
            placement: Placement { start, size },
        }
    }

    fn compute(at: (u32, u32), slices: u32, start: Option<u32>) -> Step {
        Step::CreateComputeInstance {
            gpu: GPU.parse().unwrap(),
            gpu_instance_at: Placement {
                start: at.0,
                size: at.1,
            },
            slices,
            start,
        }
    }

    fn destroy(gpu_instance: u32) -> Step {
        Step::DestroyGpuInstance {
            gpu: GPU.parse().unwrap(),
            gpu_instance,
        }
    }

    fn destroy_compute(gpu_instance: u32) -> Step {
        Step::DestroyComputeInstance {
            gpu: GPU.parse().unwrap(),
            gpu_instance,
            compute_instance: 0,
        }
    }

    fn mode(enabled: bool) -> Step {
        Step::SetMode {
            gpu: GPU.parse().unwrap(),
            enabled,
        }
    }

    /// `Ok` for a plan that can be taken, else the step's number from 0 and the beginning of the reason.
    #[track_caller]
    fn check(enabled: bool, steps: &[Step], expected: Result<(), (usize, &str)>) {
        let plan = Plan { steps: steps.to_vec() };
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
        match (plan.check(&inventory(enabled)), expected) {
            (Ok(checked), Ok(())) => assert_eq!(checked.steps(), steps),
            (Err(error), Err((number, reason))) => {
                assert_eq!(error.number, number, "{error}");
                assert!(error.reason.to_string().starts_with(reason), "{error}");
            }
            (answer, _) => panic!("{answer:?}"),
        }
    }

    #[test]
    fn instances_are_made_where_there_is_room() {
        check(true, &[create("3g.40gb", 0, 4), compute((0, 4), 3, None)], Ok(()));
        check(
            true,
            &[create("3g.40gb", 4, 4)],
            Err((0, "the slices from 4 to 4 are taken")),
        );
        check(
            true,
            &[create("3g.40gb", 2, 4)],
            Err((0, "it cannot lie there; it can at 0, 4")),
        );
        check(
            true,
            &[create("1g.5gb", 0, 1)],
            Err((0, "the GPU has no such profile; it has 1g.10gb, 1g.10gb+me")),
        );
        let twice = [create("1g.10gb+me", 0, 1), create("1g.10gb+me", 1, 1)];
        check(true, &twice, Err((1, "there can be no more than 1")));
        check(false, &[create("1g.10gb", 0, 1)], Err((0, "MIG mode is off")));
        check(false, &[mode(true), create("1g.10gb", 0, 1)], Ok(()));
    }

    #[test]
    fn room_is_made_from_the_inside_out() {
        check(
            true,
            &[destroy_compute(11), destroy(11), create("3g.40gb", 4, 4)],
            Ok(()),
        );
        check(
            true,
            &[destroy(11)],
            Err((0, "the GPU instance has compute instances left")),
        );
        check(true, &[destroy(7)], Err((0, "there is no such instance")));
        check(
            true,
            &[destroy_compute(11), destroy_compute(11)],
            Err((1, "there is no such instance")),
        );
        check(
            true,
            &[destroy_compute(11), mode(false)],
            Err((1, "there are GPU instances left")),
        );
        check(true, &[destroy_compute(11), destroy(11), mode(false)], Ok(()));
    }

    #[test]
    fn compute_instances_share_what_their_gpu_instance_has() {
        let made = create("3g.40gb", 0, 4);
        let check_compute = |instances: &[Step], expected| {
            let steps = [std::slice::from_ref(&made), instances].concat();
            check(true, &steps, expected);
        };
        let at = (0, 4);
        check_compute(&[compute(at, 1, Some(0)), compute(at, 2, Some(1))], Ok(()));
        check_compute(
            &[compute(at, 1, Some(1)), compute(at, 2, Some(1))],
            Err((2, "the slices from 1 to 1 are taken")),
        );
        check_compute(
            &[compute(at, 2, None), compute(at, 2, None)],
            Err((2, "the GPU instance has 1 compute slices left")),
        );
        check_compute(
            &[compute(at, 1, Some(3))],
            Err((1, "the GPU instance has 3 compute slices left")),
        );
        check_compute(
            &[compute(at, 0, None)],
            Err((1, "the GPU instance has 3 compute slices left")),
        );
        check_compute(&[compute((4, 4), 1, None)], Err((1, "there is no such instance")));
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let name = prop::sample::select(vec![("1g.10gb", 1), ("1g.10gb+me", 1), ("3g.40gb", 4), ("7g.80gb", 8)]);
        prop_oneof![
            (name, 0u32..9).prop_map(|((name, size), start)| create(name, start, size)),
            (
                0u32..9,
                prop::sample::select(vec![1u32, 4]),
                0u32..4,
                prop::option::of(0u32..4)
            )
                .prop_map(|(start, size, slices, from)| compute((start, size), slices, from)),
            prop::sample::select(vec![11, u32::MAX]).prop_map(destroy),
            Just(destroy_compute(11)),
            any::<bool>().prop_map(mode),
        ]
    }

    proptest! {
        #[test]
        fn whatever_the_steps_instances_on_paper_never_overlap(steps in prop::collection::vec(any_step(), 0..40)) {
            let inventory = inventory(true);
            let mig = inventory.gpus[0].mig.as_ref().unwrap();
            let mut layout = Layout::of(mig);
            for step in &steps {
                let _ = layout.take(mig, step);
                for (number, one) in layout.instances.iter().enumerate() {
                    let others = &layout.instances[number + 1..];
                    prop_assert!(others.iter().all(|other| !other.placement.overlaps(one.placement)));
                    let slices: u32 = one.compute_instances.iter().map(|instance| instance.placement.size).sum();
                    prop_assert!(slices <= mig.profile(one.profile_id).unwrap().slices);
                }
                prop_assert!(layout.enabled || layout.instances.is_empty());
            }
        }
    }
}
