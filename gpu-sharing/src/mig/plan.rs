mod change;
mod divided;
mod greedy;
mod model;
mod options;
mod prices;
mod reshape;
mod search;
mod table;

use serde::Serialize;

pub use self::{
    change::{Change, CheckedPlan, ComputeChange, Step},
    reshape::{Wanted, reshape},
};
use self::{
    model::{Goal, Model, Stage},
    search::minimise,
    table::Table,
};
use crate::mig::{Demand, Fleet, Instance, PlanError};

/// What to change on a fleet so that a demand is served.
///
/// A plan is a value: print it, store it, throw it away. [`Plan::check`] compares it with the state of the fleet at the
/// time of execution, and only a [`CheckedPlan`] has steps to carry out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The GPUs that change, in the order of the fleet.
    pub changes: Vec<Change>,
    /// The instances that serve the demand, kept and new, in the order of the fleet. A compute instance is listed by its
    /// profile (`1c.3g.40gb`) at the placement of its GPU instance.
    pub serving: Vec<(String, Instance)>,
    /// What the plan costs.
    pub cost: Cost,
    /// The least that each level of the cost can be: equal to `cost` up to the first level that is not proven.
    pub at_least: Cost,
}

/// What a plan costs. Plans are compared by the fields in this order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Cost {
    /// Idle instances that are destroyed: compute instances, and GPU instances without any.
    pub destroyed: u32,
    /// GPUs on which anything changes.
    pub touched: u32,
    /// GPUs whose MIG mode is switched.
    pub mode_changes: u32,
    /// [`loss`](crate::mig::loss) of all GPUs afterwards: what the rest is worth less for being cut up.
    pub loss: u32,
}

impl Plan {
    /// Whether no other plan has a lower cost.
    pub fn is_proven_least(&self) -> bool {
        self.cost == self.at_least
    }
}

impl From<[u32; 4]> for Cost {
    fn from([destroyed, touched, mode_changes, loss]: [u32; 4]) -> Self {
        Self {
            destroyed,
            touched,
            mode_changes,
            loss,
        }
    }
}

/// The plan that serves a demand with instances that nobody uses, at the least [`Cost`].
///
/// Idle instances serve demand as they are; those that serve none stay unless their place is needed. Pinned instances
/// serve none and are never touched. Compute instances are wanted by their own profiles (`1c.3g.40gb`): as many as fit share a GPU
/// instance, also one that is in use but for what they take. GPUs with MIG mode off are switched on if needed, [`Mode::Unavailable`](crate::mig::Mode::Unavailable) ones not used.
///
/// The plan is exact for fleets of up to twelve GPUs, and whenever [`Plan::is_proven_least`] says so; [`Plan::at_least`] says
/// how far from it a plan for a larger fleet can be.
///
/// ```
/// use std::sync::Arc;
/// use gpu_sharing::mig::{Catalogue, Demand, Fleet, GpuState, Mode, plan};
///
/// let board = Arc::clone(Catalogue::builtin().board("H100-80GB").unwrap());
/// let gpu = GpuState { name: "gpu-0".into(), board, mode: Mode::Enabled, instances: Vec::new() };
/// let fleet = Fleet::new([gpu])?;
///
/// let demand: Demand = [("1g.10gb".parse()?, 2), ("3g.40gb".parse()?, 1)].into_iter().collect();
/// let steps = plan(&fleet, &demand)?.check(&fleet)?;
/// let steps: Vec<_> = steps.steps().iter().map(ToString::to_string).collect();
/// assert_eq!(steps, ["create 1g.10gb@0 on gpu-0", "create 1g.10gb@1 on gpu-0", "create 3g.40gb@4 on gpu-0"]);
///
/// let demand: Demand = [("1g.10gb".parse()?, 4), ("2g.20gb".parse()?, 1), ("3g.40gb".parse()?, 1)].into_iter().collect();
/// assert_eq!(
///     plan(&fleet, &demand).unwrap_err().to_string(),
///     "2 of 4 × `1g.10gb` do not fit beside 1 × 2g.20gb, 1 × 3g.40gb on `gpu-0`: 2 free blocks of 1 slot are short",
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`PlanError::Short`] if the demand cannot be served whatever is destroyed of the idle instances, with the profile and the
/// blocks that are short; [`PlanError::NotOffered`] if no available GPU has a profile at all; [`PlanError::Undecided`] if a
/// large fleet is so full that neither a plan nor a proof was found.
pub fn plan(fleet: &Fleet, demand: &Demand) -> Result<Plan, PlanError> {
    let table = Table::new(fleet, demand)?;
    let (choice, mut model) = table.serve(fleet)?;
    let (choice, at_least) = least(&mut model, choice)?;
    table.plan(fleet, demand, &model, &choice, at_least)
}

/// The cheapest choice, level by level, and the proven least of each level.
fn least(model: &mut Model, mut choice: Vec<u32>) -> Result<(Vec<u32>, Cost), PlanError> {
    let mut limits: Vec<(usize, u32)> = Vec::new();
    let mut found_at = [0; 4];
    let mut at_least = [0; 4];
    for level in 0..4 {
        let stage = Stage {
            goal: Goal::Cost(level),
            limits: limits.clone(),
        };
        let found = minimise(model, &stage, choice).ok_or(PlanError::Undecided { unserved: 0 })?;
        (found_at[level], at_least[level]) = (found.value, found.at_least);
        if found.value > 0 {
            limits.push((level, found.value));
        }
        choice = found.choice;
    }
    Ok((choice, proven(found_at, at_least)))
}

/// What is proven of each level. Once one is above its least, those after it depend on it, and nothing is proven of them.
fn proven(found: [u32; 4], at_least: [u32; 4]) -> Cost {
    let open = found.iter().zip(&at_least).position(|(found, least)| found > least);
    let known = open.map_or(4, |open| open + 1);
    std::array::from_fn(|level| if level < known { at_least[level] } else { 0 }).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_the_least_where_each_level_is_proven() {
        let plan = |at_least: [u32; 4]| Plan {
            changes: Vec::new(),
            serving: Vec::new(),
            cost: [0, 1, 0, 7].into(),
            at_least: at_least.into(),
        };
        assert!(plan([0, 1, 0, 7]).is_proven_least());
        assert!(!plan([0, 1, 0, 6]).is_proven_least());
    }

    #[test]
    fn nothing_is_proven_after_a_level_above_its_least() {
        #[track_caller]
        fn check(found: [u32; 4], at_least: [u32; 4], expected: [u32; 4]) {
            assert_eq!(proven(found, at_least), expected.into());
        }
        check([2, 3, 0, 7], [2, 3, 0, 7], [2, 3, 0, 7]);
        check([2, 3, 0, 7], [2, 2, 0, 7], [2, 2, 0, 0]);
        check([2, 3, 1, 7], [0, 3, 1, 7], [0, 0, 0, 0]);
        check([2, 3, 1, 7], [2, 3, 1, 6], [2, 3, 1, 6]);
    }
}
