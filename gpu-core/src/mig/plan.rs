mod checked;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use self::checked::CheckedPlan;
use super::{Impossible, Step};
use crate::Inventory;

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
        CheckedPlan::of(self, inventory)
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
