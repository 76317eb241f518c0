use std::collections::BTreeMap;

use super::{Plan, PlanError};
use crate::{
    GpuUuid, Inventory,
    mig::{Impossible, Mig, Step, layout::Layout},
};

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
    pub(super) fn of(plan: Plan, inventory: &Inventory) -> Result<Self, PlanError> {
        let mut gpus = BTreeMap::new();
        for (number, step) in plan.steps.iter().enumerate() {
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
        Ok(Self {
            existing: existing.collect(),
            steps: plan.steps,
        })
    }

    /// The steps.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    #[cfg(feature = "nvml")]
    pub(crate) fn existing(&self) -> &BTreeMap<GpuUuid, Mig> {
        &self.existing
    }
}
