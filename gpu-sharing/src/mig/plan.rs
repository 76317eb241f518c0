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
    let (choice, at_least) = least(&mut model, choice);
    table.plan(fleet, demand, &model, &choice, at_least)
}

/// The cheapest choice, level by level, and the proven least of each level.
fn least(model: &mut Model, mut choice: Vec<u32>) -> (Vec<u32>, Cost) {
    let mut limits: Vec<(usize, u32)> = Vec::new();
    let mut found_at = [0; 4];
    let mut at_least = [0; 4];
    for level in 0..4 {
        let stage = Stage {
            goal: Goal::Cost(level),
            limits: limits.clone(),
        };
        let found = minimise(model, &stage, choice);
        (found_at[level], at_least[level]) = (found.value, found.at_least);
        if found.value > 0 {
            limits.push((level, found.value));
        }
        choice = found.choice;
    }
    (choice, proven(found_at, at_least))
}

/// What is proven of each level. Once one is above its least, those after it depend on it, and nothing is proven of them.
fn proven(found: [u32; 4], at_least: [u32; 4]) -> Cost {
    let open = found.iter().zip(&at_least).position(|(found, least)| found > least);
    let known = open.map_or(4, |open| open + 1);
    std::array::from_fn(|level| if level < known { at_least[level] } else { 0 }).into()
}

#[cfg(test)]
mod tests {
    use std::{ops::RangeInclusive, sync::Arc};

    use proptest::prelude::*;

    use super::*;
    use crate::mig::{Catalogue, Geometry, GpuState, Held, Mode};

    /// Fleets of three boards with idle and pinned instances, and demands.
    pub(super) fn fleets(gpus: RangeInclusive<usize>) -> impl Strategy<Value = (Fleet, Demand)> {
        let boards = ["H100-80GB", "A30-24GB", "A100-40GB"];
        let boards = boards.map(|name| Catalogue::builtin().board(name).expect("built in"));
        let instance = (any::<prop::sample::Index>(), prop::bool::weighted(0.4));
        let gpu = (
            0..boards.len(),
            prop::bool::weighted(0.8),
            prop::collection::vec(instance, 0..=5),
        );
        let asked = (0..boards.len(), any::<prop::sample::Index>(), 1_u32..8);
        let all = (prop::collection::vec(gpu, gpus), prop::collection::vec(asked, 1..=4));
        all.prop_map(move |(gpus, asked)| {
            let gpus = gpus.into_iter().enumerate().map(|(at, (board, enabled, tries))| {
                let board = boards[board];
                let mut instances: Vec<Held> = Vec::new();
                for (place, pinned) in tries.into_iter().filter(|_| enabled) {
                    let places = board.base_profiles().into_iter().flat_map(|profile| {
                        let spec = board.spec(&profile).expect("it is the board's");
                        let at = |&placement| Instance {
                            placement,
                            profile: profile.clone(),
                        };
                        spec.placements.iter().map(at).collect::<Vec<_>>()
                    });
                    let new = Held::whole(place.get(&places.collect::<Vec<_>>()).clone(), pinned);
                    let with = instances.iter().chain([&new]).map(|held| held.instance.clone());
                    if Geometry::from_instances(board, with).is_ok() {
                        instances.push(new);
                    }
                }
                GpuState {
                    name: format!("gpu-{at}"),
                    board: Arc::clone(board),
                    mode: if enabled { Mode::Enabled } else { Mode::Disabled },
                    instances,
                }
            });
            let asked = asked
                .into_iter()
                .map(|(board, at, n)| (at.get(&boards[board].base_profiles()).clone(), n));
            (Fleet::new(gpus).expect("legal"), asked.collect())
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_proven_stays_so_at_the_levels_after_it((fleet, demand) in fleets(13..=24)) {
            let Ok(plan) = plan(&fleet, &demand) else {
                return Ok(());
            };
            let levels = |cost: Cost| [cost.destroyed, cost.touched, cost.mode_changes, cost.loss];
            let (cost, at_least) = (levels(plan.cost), levels(plan.at_least));
            let proven = cost.iter().zip(&at_least).take_while(|(cost, least)| cost == least).count();
            prop_assert!(cost.iter().zip(&at_least).all(|(cost, least)| cost >= least), "{:?}", plan);
            prop_assert!(at_least[(proven + 1).min(4)..].iter().all(|&least| least == 0), "{:?}", plan);
        }
    }

    #[test]
    fn the_first_place_is_taken_where_all_are_as_good() {
        #[track_caller]
        fn check(there: &[u8], demand: &str, expected: &[&str]) {
            let board = Arc::clone(Catalogue::builtin().board("A30-24GB").expect("built in"));
            let there = there.iter().map(|&start| ("1g.6gb".parse().expect("a profile"), start));
            let there = Geometry::new(&board, there).expect("it fits");
            let idle = |instance: &Instance| Held::whole(instance.clone(), false);
            let fleet = Fleet::new([GpuState {
                name: "gpu-0".to_owned(),
                mode: Mode::Enabled,
                instances: there.instances().iter().map(idle).collect(),
                board,
            }]);
            let (fleet, demand) = (fleet.expect("legal"), [(demand.parse().expect("a profile"), 1)]);
            let made = plan(&fleet, &demand.into_iter().collect()).expect("there is room");
            let steps: Vec<_> = made
                .check(&fleet)
                .expect("it is fresh")
                .steps()
                .iter()
                .map(Step::to_string)
                .collect();
            assert_eq!(steps, expected);
        }
        check(&[], "1g.6gb", &["create 1g.6gb@0 on gpu-0"]);
        check(
            &[0, 1, 2, 3],
            "2g.12gb",
            &[
                "destroy 1g.6gb@0 on gpu-0",
                "destroy 1g.6gb@1 on gpu-0",
                "create 2g.12gb@0 on gpu-0",
            ],
        );
    }

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
