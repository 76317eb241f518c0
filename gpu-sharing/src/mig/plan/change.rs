use std::fmt;

use serde::Serialize;

use crate::mig::{Fleet, Geometry, GpuState, Held, Instance, Mode, Plan, StaleError, StaleReason};

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
    /// Make an instance at its placement, and in it one compute instance of its whole size.
    Create {
        /// The GPU.
        gpu: String,
        /// What and where.
        instance: Instance,
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
            Self::Create { gpu, instance } => format!("create {instance} on {gpu}"),
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

impl Change {
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
        after.instances.extend(self.created.iter().map(|instance| Held {
            instance: instance.clone(),
            pinned: false,
        }));
        let instances = after.instances.iter().map(|held| held.instance.clone());
        Geometry::from_instances(&after.board, instances).map_err(StaleReason::Geometry)?;
        Ok(after)
    }

    fn steps(&self, mode: Mode, steps: &mut Vec<Step>) {
        let gpu = || self.gpu.clone();
        steps.extend(self.destroyed.iter().map(|instance| Step::Destroy {
            gpu: gpu(),
            instance: instance.clone(),
        }));
        if let Some(enabled) = self.mode
            && enabled != (mode == Mode::Enabled)
        {
            steps.push(Step::SetMode { gpu: gpu(), enabled });
        }
        steps.extend(self.created.iter().map(|instance| Step::Create {
            gpu: gpu(),
            instance: instance.clone(),
        }));
    }
}
