use std::fmt;

use serde::Serialize;

use crate::mig::{Compute, Fleet, Geometry, GpuState, Held, Instance, Mode, Part, Plan, StaleError, StaleReason};

/// What a plan does to one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The name of the GPU in the fleet.
    pub gpu: String,
    /// Its board, so that a plan is not carried out on another.
    pub board: String,
    /// The MIG mode to switch to, before anything is made and after everything is destroyed.
    pub mode: Option<bool>,
    /// Idle instances that go, in order of their start.
    pub destroyed: Vec<Instance>,
    /// Instances to make, in order of their start.
    pub created: Vec<Instance>,
    /// Instances that stay and are divided anew, and new ones that are not to have one compute instance of their whole size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compute: Vec<ComputeChange>,
}

/// What a plan does to the compute instances of one GPU instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ComputeChange {
    /// The GPU instance.
    pub instance: Instance,
    /// Compute instances that go.
    pub destroyed: Vec<Part>,
    /// Those to make, largest first; where each starts is where the driver puts it by itself in an empty instance.
    pub created: Vec<Part>,
}

/// One thing to do on the hardware.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum Step {
    /// Switch MIG mode; on Ampere this resets the GPU.
    SetMode {
        /// The GPU.
        gpu: String,
        /// On or off.
        enabled: bool,
    },
    /// Destroy an instance with its compute instances.
    Destroy {
        /// The GPU.
        gpu: String,
        /// Which one.
        instance: Instance,
    },
    /// Make an instance at its placement, and in it its compute instances.
    Create {
        /// The GPU.
        gpu: String,
        /// What and where.
        instance: Instance,
        /// The compute instances, largest first; mostly one of the whole size.
        compute: Vec<Part>,
    },
    /// Destroy one compute instance of an instance that stays.
    DestroyCompute {
        /// The GPU.
        gpu: String,
        /// The instance.
        instance: Instance,
        /// Which compute instance.
        part: Part,
    },
    /// Make one compute instance in an instance that stays.
    CreateCompute {
        /// The GPU.
        gpu: String,
        /// The instance.
        instance: Instance,
        /// With how many compute slices, and from which on.
        part: Part,
    },
}

/// A plan that fits the state of the fleet; the only thing that can be carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckedPlan {
    steps: Vec<Step>,
}

impl CheckedPlan {
    /// What to do, in this order: GPU by GPU, on each what is destroyed before what is made.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::SetMode { gpu, enabled: true } => format!("enable MIG on {gpu}"),
            Self::SetMode { gpu, enabled: false } => format!("disable MIG on {gpu}"),
            Self::Destroy { gpu, instance } => format!("destroy {instance} on {gpu}"),
            Self::Create { gpu, instance, compute } if *compute == [Part::whole(&instance.profile)] => {
                format!("create {instance} on {gpu}")
            }
            Self::Create { gpu, instance, compute } => {
                let parts: Vec<_> = compute.iter().map(|part| format!("{}c", part.slices)).collect();
                format!("create {instance} on {gpu}, divided into {}", parts.join(" + "))
            }
            Self::DestroyCompute { gpu, instance, part } => {
                format!("destroy {}c in {instance} on {gpu}", part.slices)
            }
            Self::CreateCompute { gpu, instance, part } => {
                format!("create {}c in {instance} on {gpu}", part.slices)
            }
        };
        f.pad(&text)
    }
}

impl Plan {
    /// Compares the plan with the fleet as it is now.
    ///
    /// # Errors
    ///
    /// [`StaleError`] if a GPU is gone or another, or unavailable; if an instance that the plan destroys is gone or in use
    /// by now; or if one that it makes has no place any more. Changes elsewhere in the fleet do not matter.
    pub fn check(&self, fleet: &Fleet) -> Result<CheckedPlan, StaleError> {
        let mut steps = Vec::new();
        for change in &self.changes {
            let stale = |reason| StaleError {
                gpu: change.gpu.clone(),
                reason,
            };
            let gpu = fleet.gpu(&change.gpu).ok_or_else(|| stale(StaleReason::Gone))?;
            change.after(gpu).map_err(stale)?;
            change.steps(gpu.mode, &mut steps);
        }
        Ok(CheckedPlan { steps })
    }

    /// The fleet once the plan is carried out; new instances are idle.
    ///
    /// # Errors
    ///
    /// As [`Plan::check`].
    pub fn after(&self, fleet: &Fleet) -> Result<Fleet, StaleError> {
        let mut gpus = fleet.gpus().to_vec();
        for change in &self.changes {
            let stale = |reason| StaleError {
                gpu: change.gpu.clone(),
                reason,
            };
            let gpu = gpus
                .iter_mut()
                .find(|gpu| gpu.name == change.gpu)
                .ok_or_else(|| stale(StaleReason::Gone))?;
            *gpu = change.after(gpu).map_err(stale)?;
        }
        Fleet::new(gpus).map_err(|error| StaleError {
            gpu: error.gpu().to_owned(),
            reason: StaleReason::Gone,
        })
    }
}

impl ComputeChange {
    fn carry_out(&self, held: &mut Held, made: bool) -> Result<(), StaleReason> {
        let mut parts = if made { Vec::new() } else { held.parts() };
        for gone in &self.destroyed {
            let at = parts
                .iter()
                .position(|part| (part.start, part.slices) == (gone.start, gone.slices));
            let at = at.ok_or_else(|| StaleReason::NoInstance {
                instance: self.instance.clone(),
            })?;
            if parts.remove(at).pinned {
                return Err(StaleReason::InUse {
                    instance: self.instance.clone(),
                });
            }
        }
        parts.extend(self.created.iter().copied());
        parts.sort_unstable();
        held.compute = Compute::of(&held.instance.profile, parts);
        Ok(())
    }
}

impl Change {
    /// Whether no instance goes, comes or is divided anew.
    pub(super) fn leaves_instances(&self) -> bool {
        self.destroyed.is_empty() && self.created.is_empty() && self.compute.is_empty()
    }

    fn after(&self, gpu: &GpuState) -> Result<GpuState, StaleReason> {
        if gpu.board.name() != self.board {
            return Err(StaleReason::Board {
                now: gpu.board.to_string(),
            });
        }
        if gpu.mode == Mode::Unavailable {
            return Err(StaleReason::Unavailable);
        }
        let mut after = gpu.clone();
        for instance in &self.destroyed {
            let at = after.instances.iter().position(|held| held.instance == *instance);
            let at = at.ok_or_else(|| StaleReason::NoInstance {
                instance: instance.clone(),
            })?;
            if after.instances.remove(at).pinned {
                return Err(StaleReason::InUse {
                    instance: instance.clone(),
                });
            }
        }
        match self.mode {
            Some(true) => after.mode = Mode::Enabled,
            Some(false) if !after.instances.is_empty() => return Err(StaleReason::NotEmpty),
            Some(false) => after.mode = Mode::Disabled,
            None => {}
        }
        if after.mode == Mode::Disabled && !self.created.is_empty() {
            return Err(StaleReason::MigDisabled);
        }
        let created = self.created.iter().cloned();
        after
            .instances
            .extend(created.map(|instance| Held::whole(instance, false)));
        for change in &self.compute {
            let made = self.created.contains(&change.instance);
            let held = after.instances.iter_mut().find(|held| held.instance == change.instance);
            let held = held.ok_or_else(|| StaleReason::NoInstance {
                instance: change.instance.clone(),
            })?;
            change.carry_out(held, made)?;
        }
        let instances = after.instances.iter().map(|held| held.instance.clone());
        Geometry::from_instances(&after.board, instances).map_err(StaleReason::Geometry)?;
        Ok(after)
    }

    fn steps(&self, mode: Mode, steps: &mut Vec<Step>) {
        let gpu = || self.gpu.clone();
        let stays = || {
            self.compute
                .iter()
                .filter(|change| !self.created.contains(&change.instance))
        };
        steps.extend(self.destroyed.iter().map(|instance| Step::Destroy {
            gpu: gpu(),
            instance: instance.clone(),
        }));
        steps.extend(stays().flat_map(|change| {
            change.destroyed.iter().map(|&part| Step::DestroyCompute {
                gpu: self.gpu.clone(),
                instance: change.instance.clone(),
                part,
            })
        }));
        if let Some(enabled) = self.mode
            && enabled != (mode == Mode::Enabled)
        {
            steps.push(Step::SetMode { gpu: gpu(), enabled });
        }
        steps.extend(self.created.iter().map(|instance| {
            let divided = self.compute.iter().find(|change| change.instance == *instance);
            Step::Create {
                gpu: gpu(),
                instance: instance.clone(),
                compute: divided.map_or_else(|| vec![Part::whole(&instance.profile)], |change| change.created.clone()),
            }
        }));
        steps.extend(stays().flat_map(|change| {
            change.created.iter().map(|&part| Step::CreateCompute {
                gpu: self.gpu.clone(),
                instance: change.instance.clone(),
                part,
            })
        }));
    }
}
