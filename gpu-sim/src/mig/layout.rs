//! How one GPU is partitioned now, and the changes that the driver allows.

use serde::{Deserialize, Serialize};

use super::{COMPUTE_PROFILES, MigProfile, MigTable, compute_starts, free_starts, instance_id, preferred};

/// MIG mode and instances of one GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Layout {
    /// Whether the mode is on.
    #[serde(default)]
    pub(crate) mode: bool,
    /// What the mode will be after a reset.
    #[serde(default)]
    pub(crate) pending: bool,
    /// The GPU instances, by id.
    #[serde(default)]
    pub(crate) instances: Vec<GpuInstance>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuInstance {
    pub(crate) id: u32,
    /// NVML's constant.
    pub(crate) profile: u32,
    pub(crate) start: u32,
    /// The compute instances, by id.
    #[serde(default)]
    pub(crate) compute: Vec<ComputeInstance>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ComputeInstance {
    pub(crate) id: u32,
    pub(crate) slices: u32,
    pub(crate) start: u32,
}

/// Why the driver refuses a change, as NVML's return code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    InvalidArgument = 2,
    NotSupported = 3,
    NotFound = 6,
    InUse = 19,
    InsufficientMemory = 20,
    InsufficientResources = 23,
}

/// What became of a change of the mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    /// It is in force.
    Done = 0,
    /// A reset has to follow: a virtual machine cannot do it for itself.
    ResetRequired = 16,
    /// A reset has to follow when no process uses the GPU any more.
    InUse = 19,
}

impl Activation {
    /// As NVML's return code.
    pub(crate) fn code(self) -> u32 {
        self as u32
    }
}

/// What a change of the mode takes on a board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ModeRules {
    /// The mode changes only with a reset, and outlasts a reboot: Ampere. Later boards need no reset and start with the
    /// mode off.
    pub(crate) by_reset: bool,
    /// The board is passed through to a virtual machine, where the driver cannot reset it.
    pub(crate) passed_through: bool,
}

impl Refusal {
    pub(crate) fn code(self) -> u32 {
        self as u32
    }
}

/// Numbers of the instances that processes run on: GPU instance, and compute instance within it.
pub(crate) type Used = Vec<(u32, u32)>;

impl Layout {
    pub(crate) fn instance(&self, id: u32) -> Option<&GpuInstance> {
        self.instances.iter().find(|instance| instance.id == id)
    }

    fn instance_mut(&mut self, id: u32) -> Result<&mut GpuInstance, Refusal> {
        self.instances
            .iter_mut()
            .find(|instance| instance.id == id)
            .ok_or(Refusal::NotFound)
    }

    /// The MIG devices in the order of their indices: each is a compute instance.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (&GpuInstance, &ComputeInstance)> {
        self.instances
            .iter()
            .flat_map(|instance| instance.compute.iter().map(move |compute| (instance, compute)))
    }

    fn taken<'a>(&self, table: &'a MigTable) -> Vec<(&'a MigProfile, u32)> {
        self.instances
            .iter()
            .filter_map(|instance| Some((table.by_constant(instance.profile)?, instance.start)))
            .collect()
    }

    /// Where one more instance of the profile fits now.
    pub(crate) fn free(&self, table: &MigTable, profile: &MigProfile) -> Vec<u32> {
        free_starts(table, profile, &self.taken(table))
    }

    /// How many more instances of the profile fit now.
    pub(crate) fn remaining(&self, table: &MigTable, profile: &MigProfile) -> u32 {
        let mut taken = self.taken(table);
        let mut count = 0;
        // The places of one profile do not overlap, so taking one never costs another.
        while let Some(&start) = free_starts(table, profile, &taken).first() {
            taken.push((profile, start));
            count += 1;
        }
        count
    }

    /// Turns the mode on or off, or notes that it shall be.
    ///
    /// It cannot be turned off while there are instances. On a GPU in use it waits for a reset. Where it takes one, the
    /// driver resets an idle GPU itself.
    pub(crate) fn set_mode(&mut self, on: bool, in_use: bool, rules: ModeRules) -> Result<Activation, Refusal> {
        if !on && !self.instances.is_empty() {
            return Err(Refusal::InUse);
        }
        self.pending = on;
        if self.mode == on {
            return Ok(Activation::Done);
        }
        if in_use {
            return Ok(Activation::InUse);
        }
        if rules.by_reset && rules.passed_through {
            return Ok(Activation::ResetRequired);
        }
        self.mode = on;
        Ok(Activation::Done)
    }

    /// What a reset of an idle GPU does.
    pub(crate) fn reset(&mut self) {
        self.instances.clear();
        self.mode = self.pending;
    }

    /// What a reboot does: instances are lost everywhere, the mode where it is not kept on the board.
    pub(crate) fn reboot(&mut self, rules: ModeRules) {
        self.pending &= rules.by_reset;
        self.reset();
    }

    /// Makes a GPU instance, where told or where the driver likes it best.
    pub(crate) fn create(
        &mut self,
        table: &MigTable,
        profile: &MigProfile,
        start: Option<u32>,
    ) -> Result<GpuInstance, Refusal> {
        if !self.mode {
            return Err(Refusal::NotSupported);
        }
        if start.is_some_and(|start| !profile.starts.contains(&start)) {
            return Err(Refusal::InvalidArgument);
        }
        let free = self.free(table, profile);
        let place = match start {
            Some(start) => free.contains(&start).then_some(start),
            None => preferred(table, profile, &free),
        };
        let start = place.ok_or(Refusal::InsufficientResources)?;
        let instance = GpuInstance {
            id: instance_id(table, start, profile.size),
            profile: profile.profile,
            start,
            compute: Vec::new(),
        };
        self.instances.push(instance.clone());
        self.instances.sort_by_key(|instance| instance.id);
        Ok(instance)
    }

    /// Removes a GPU instance that has no compute instance left.
    pub(crate) fn destroy(&mut self, id: u32) -> Result<(), Refusal> {
        if !self.instance_mut(id)?.compute.is_empty() {
            return Err(Refusal::InUse);
        }
        self.instances.retain(|instance| instance.id != id);
        Ok(())
    }

    /// Makes a compute instance in a GPU instance, where told or as low as it fits.
    pub(crate) fn create_compute(
        &mut self,
        table: &MigTable,
        id: u32,
        slices: u32,
        start: Option<u32>,
    ) -> Result<ComputeInstance, Refusal> {
        let instance = self.instance_mut(id)?;
        let starts = compute_starts(gpu_slices(table, instance), slices);
        if starts.is_empty() {
            return Err(Refusal::NotSupported);
        }
        if start.is_some_and(|start| !starts.contains(&start)) {
            return Err(Refusal::InvalidArgument);
        }
        let free = instance.free(table, slices);
        let start = match start {
            Some(start) => free.contains(&start).then_some(start),
            None => free.first().copied(),
        };
        let start = start.ok_or(Refusal::InsufficientResources)?;
        let id = (0..u32::MAX)
            .find(|id| instance.compute.iter().all(|compute| compute.id != *id))
            .ok_or(Refusal::InsufficientResources)?;
        let compute = ComputeInstance { id, slices, start };
        instance.compute.push(compute.clone());
        instance.compute.sort_by_key(|compute| compute.id);
        Ok(compute)
    }

    /// Removes a compute instance that no process runs on.
    pub(crate) fn destroy_compute(&mut self, id: u32, compute: u32, used: &Used) -> Result<(), Refusal> {
        let instance = self.instance_mut(id)?;
        if instance.compute.iter().all(|other| other.id != compute) {
            return Err(Refusal::NotFound);
        }
        if used.contains(&(id, compute)) {
            return Err(Refusal::InUse);
        }
        instance.compute.retain(|other| other.id != compute);
        Ok(())
    }
}

impl GpuInstance {
    /// Where one more compute instance of that many slices fits now.
    pub(crate) fn free(&self, table: &MigTable, slices: u32) -> Vec<u32> {
        let overlaps = |start: u32| {
            self.compute
                .iter()
                .any(|other| other.start < start + slices && start < other.start + other.slices)
        };
        let mut starts = compute_starts(gpu_slices(table, self), slices);
        starts.retain(|start| !overlaps(*start));
        starts
    }
}

fn gpu_slices(table: &MigTable, instance: &GpuInstance) -> u32 {
    table.by_constant(instance.profile).map_or(0, |profile| profile.slices)
}

/// The size in slices of a compute instance profile, by NVML's constant or the driver's id, which are the same.
pub(crate) fn compute_slices(profile: u32) -> Option<u32> {
    COMPUTE_PROFILES
        .iter()
        .find(|(_, constant)| *constant == profile)
        .map(|(slices, _)| *slices)
}

/// The opposite.
pub(crate) fn compute_profile(slices: u32) -> Option<u32> {
    COMPUTE_PROFILES
        .iter()
        .find(|(candidate, _)| *candidate == slices)
        .map(|(_, constant)| *constant)
}
