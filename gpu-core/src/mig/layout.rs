use super::{ComputeInstance, GpuInstance, Mig, MigProfile, Placement, Step};

/// A GPU's partitions on paper.
pub(super) struct Layout {
    pub(super) enabled: bool,
    pub(super) instances: Vec<GpuInstance>,
}

impl Layout {
    pub(super) fn of(mig: &Mig) -> Self {
        Self {
            enabled: mig.enabled,
            instances: mig.gpu_instances.clone(),
        }
    }

    pub(super) fn take(&mut self, mig: &Mig, step: &Step) -> Result<(), Impossible> {
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
        if mig.profiles.is_empty() {
            return Err(Impossible::ProfilesUnknown);
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
    /// What the board offers is not known: drivers before 550 do not say it while MIG mode is off. Turn it on with a plan of
    /// its own, and read the inventory anew.
    #[error("the driver does not say what the GPU offers while MIG mode is off")]
    ProfilesUnknown,
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
