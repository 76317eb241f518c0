mod change;
mod greedy;
mod model;
mod options;
mod prices;
mod reshape;
mod search;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde::Serialize;

pub use self::{
    change::{Change, CheckedPlan, ComputeChange, Step},
    reshape::{Wanted, reshape},
};
use self::{
    model::{Goal, Model, Stage},
    options::{Pool, options, way},
    search::minimise,
};
use crate::mig::{Board, Demand, Fleet, GpuState, Held, Instance, Mode, PlanError, Profile, Shortage, loss::Losses};

/// What to change on a fleet so that a demand is served.
///
/// A plan is a value: print it, store it, throw it away. [`Plan::check`] compares it with the state of the fleet at the
/// time of execution, and only a [`CheckedPlan`] has steps to carry out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The GPUs that change, in the order of the fleet.
    pub changes: Vec<Change>,
    /// The instances that serve the demand, kept and new, in the order of the fleet.
    pub serving: Vec<(String, Instance)>,
    /// What the plan costs.
    pub cost: Cost,
    /// The least that each level of the cost can be: equal to `cost` up to the first level that is not proven.
    pub at_least: Cost,
}

/// What a plan costs. Plans are compared by the fields in this order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Cost {
    /// Idle instances that are destroyed.
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
/// serve none and are never touched. GPUs with MIG mode off are switched on if needed, [`Mode::Unavailable`] ones not used.
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

/// The demand as rows and the options of each GPU.
struct Table {
    profiles: Vec<Profile>,
    wanted: Vec<u32>,
    /// Board by name of its allocation, and the row of each of its profiles.
    boards: Vec<(Arc<Board>, Vec<Option<u16>>)>,
    pool: Pool,
    groups: Vec<Vec<u32>>,
}

impl Table {
    fn new(fleet: &Fleet, demand: &Demand) -> Result<Self, PlanError> {
        let (profiles, wanted): (Vec<_>, Vec<_>) = demand.iter().map(|(profile, n)| (profile.clone(), n)).unzip();
        let mut table = Self {
            profiles,
            wanted,
            boards: Vec::new(),
            pool: Pool::default(),
            groups: Vec::new(),
        };
        table.check_offers(fleet)?;
        let mut losses: Vec<Losses> = Vec::new();
        let mut known: HashMap<(usize, Mode, Vec<Held>), Vec<u32>> = HashMap::new();
        for gpu in fleet.gpus() {
            let board = table.board(&gpu.board);
            if board == losses.len() {
                losses.push(Losses::new(&gpu.board));
            }
            let (rows, losses) = (&table.boards[board].1, &mut losses[board]);
            let pool = &mut table.pool;
            let mut held = gpu.instances.clone();
            held.sort();
            let same = known.entry((board, gpu.mode, held));
            let group = same.or_insert_with(|| options(gpu, rows, losses, pool)).clone();
            table.groups.push(group);
        }
        Ok(table)
    }

    fn check_offers(&self, fleet: &Fleet) -> Result<(), PlanError> {
        for profile in &self.profiles {
            if profile.compute_slices() != profile.slices() {
                return Err(PlanError::ComputeInstance {
                    profile: profile.clone(),
                });
            }
            let offers = |gpu: &GpuState| gpu.mode != Mode::Unavailable && gpu.board.index(profile).is_some();
            if !fleet.gpus().iter().any(offers) {
                let mut boards: Vec<_> = fleet.gpus().iter().map(|gpu| gpu.board.to_string()).collect();
                boards.sort();
                boards.dedup();
                return Err(PlanError::NotOffered {
                    profile: profile.clone(),
                    boards,
                });
            }
        }
        Ok(())
    }

    /// The place of a board in the table; boards are few.
    fn board(&mut self, board: &Arc<Board>) -> usize {
        let same = |(known, _): &(Arc<Board>, _)| Arc::ptr_eq(known, board) || known == board;
        self.boards.iter().position(same).unwrap_or_else(|| {
            let row = |spec: &crate::mig::ProfileSpec| {
                let row = self.profiles.iter().position(|profile| *profile == spec.profile)?;
                u16::try_from(row).ok()
            };
            self.boards
                .push((Arc::clone(board), board.profiles().iter().map(row).collect()));
            self.boards.len() - 1
        })
    }

    /// A choice that serves all demand, or why there is none.
    fn serve(&self, fleet: &Fleet) -> Result<(Vec<u32>, Model), PlanError> {
        let (choice, unserved, proven, model) = self.most(fleet, &self.wanted, vec![1; self.wanted.len()])?;
        if unserved == 0 {
            return Ok((choice, model));
        }
        if !proven {
            return Err(PlanError::Undecided { unserved });
        }
        Err(self.shortage(fleet)?)
    }

    /// The first profile, from the largest down, of which there is not room for all beside the larger ones.
    fn shortage(&self, fleet: &Fleet) -> Result<PlanError, PlanError> {
        let order = self.largest_first();
        let mut asked = vec![0; self.wanted.len()];
        for (at, &row) in order.iter().enumerate() {
            asked[row] = self.wanted[row];
            // What came before fits; leaving it out must never pay.
            let mut weights = vec![asked[row].saturating_add(1).min(10_000); asked.len()];
            weights[row] = 1;
            let (_, unserved, proven, _) = self.most(fleet, &asked, weights)?;
            if unserved > 0 {
                if !proven {
                    return Err(PlanError::Undecided { unserved });
                }
                let beside = order[..at]
                    .iter()
                    .map(|&row| (self.profiles[row].clone(), self.wanted[row]));
                return Ok(PlanError::Short(Box::new(Shortage {
                    profile: self.profiles[row].clone(),
                    wanted: self.wanted[row],
                    short: unserved.min(self.wanted[row]),
                    slots: self.slots(row),
                    beside: beside.collect(),
                    gpus: fleet.gpus().iter().map(|gpu| gpu.name.clone()).collect(),
                })));
            }
        }
        Err(PlanError::Undecided { unserved: 0 })
    }

    /// Memory slots of one instance; the fewest, where boards differ.
    fn slots(&self, row: usize) -> u8 {
        let offers = self.boards.iter().filter_map(|(board, rows)| {
            let index = rows.iter().position(|r| r.map(usize::from) == Some(row))?;
            Some(board.rules()[index].slots)
        });
        offers.min().unwrap_or(0)
    }

    /// The rows by the share of its GPU that an instance takes, and where these are equal by what can lie in fewer places.
    fn largest_first(&self) -> Vec<usize> {
        let size = |&row: &usize| {
            let share = |(board, rows): &(Arc<Board>, Vec<Option<u16>>)| {
                let index = rows.iter().position(|r| r.map(usize::from) == Some(row))?;
                let rule = &board.rules()[index];
                Some((
                    u32::from(rule.slots) * 64 / u32::from(board.memory_slots()),
                    Reverse(rule.placements.len()),
                ))
            };
            self.boards.iter().filter_map(share).min()
        };
        let mut order: Vec<_> = (0..self.wanted.len()).collect();
        order.sort_by_key(|row| Reverse((size(row), self.profiles[*row].clone())));
        order
    }

    /// A choice that serves the most: what is left by weight, and whether that is proven to be the least.
    fn most(
        &self,
        fleet: &Fleet,
        wanted: &[u32],
        weights: Vec<u32>,
    ) -> Result<(Vec<u32>, u32, bool, Model), PlanError> {
        let pool = self.pool.clone();
        let mut model = Model {
            pool,
            groups: self.groups.clone(),
            wanted: wanted.to_vec(),
        };
        let stage = Stage {
            goal: Goal::Unserved(weights),
            limits: Vec::new(),
        };
        let start = greedy::fill(self, fleet, &self.largest_first(), wanted);
        let found = minimise(&mut model, &stage, start).ok_or(PlanError::Undecided { unserved: 0 })?;
        model.groups.clone_from(&self.groups);
        Ok((found.choice, found.value, found.at_least == found.value, model))
    }

    fn plan(
        &self,
        fleet: &Fleet,
        demand: &Demand,
        model: &Model,
        choice: &[u32],
        at_least: Cost,
    ) -> Result<Plan, PlanError> {
        let mut excess: BTreeMap<usize, u32> = BTreeMap::new();
        for &option in choice {
            for &(row, n) in model.pool.supply(option) {
                *excess.entry(row.into()).or_default() += u32::from(n);
            }
        }
        for (&row, n) in &mut excess {
            *n = n.saturating_sub(demand.count(&self.profiles[row]));
        }
        let mut plan = Plan {
            changes: Vec::new(),
            serving: Vec::new(),
            cost: Cost::default(),
            at_least,
        };
        for (gpu, &option) in fleet.gpus().iter().zip(choice) {
            let Some((_, rows)) = self.boards.iter().find(|(board, _)| *board == gpu.board) else {
                continue;
            };
            let mut losses = Losses::new(&gpu.board);
            let (supply, cost) = (model.pool.supply(option), *model.pool.cost(option));
            let way = way(gpu, rows, &mut losses, supply, cost);
            let mut way = way.ok_or(PlanError::Undecided { unserved: 0 })?;
            // A plan that is not the least may make more than is wanted.
            way.created.retain(|&(index, _)| {
                let spare = rows[index].and_then(|row| excess.get_mut(&row.into()));
                spare.is_none_or(|spare| std::mem::replace(spare, spare.saturating_sub(1)) == 0)
            });
            plan.add(gpu, &way, rows, &mut losses);
        }
        plan.limit_serving(demand);
        Ok(plan)
    }
}

impl Plan {
    fn add(&mut self, gpu: &GpuState, way: &options::Way, rows: &[Option<u16>], losses: &mut Losses) {
        let instance = |&(index, placement): &(usize, _)| Instance {
            placement,
            profile: gpu.board.profile(index).clone(),
        };
        let served = way
            .kept
            .iter()
            .chain(&way.created)
            .filter(|(index, _)| rows[*index].is_some());
        self.serving.extend(served.map(|at| (gpu.name.clone(), instance(at))));
        if gpu.mode == Mode::Unavailable {
            return;
        }
        let idle = gpu.placed(false);
        let destroyed: Vec<_> = idle.iter().filter(|at| !way.kept.contains(at)).map(instance).collect();
        let created: Vec<_> = way.created.iter().map(instance).collect();
        let after = gpu
            .placed(true)
            .into_iter()
            .chain(way.kept.clone())
            .chain(way.created.clone());
        self.cost.loss += losses.of(after.fold(0, |mask, (_, placement)| mask | placement.mask()));
        if destroyed.is_empty() && created.is_empty() {
            return;
        }
        let enable = gpu.mode == Mode::Disabled;
        self.cost.destroyed += u32::try_from(destroyed.len()).unwrap_or(u32::MAX);
        self.cost.touched += 1;
        self.cost.mode_changes += u32::from(enable);
        let mode = enable.then_some(true);
        self.changes.push(Change {
            gpu: gpu.name.clone(),
            board: gpu.board.to_string(),
            mode,
            destroyed,
            created,
            compute: Vec::new(),
        });
    }

    /// Idle instances may serve more than is wanted: name as many as are.
    fn limit_serving(&mut self, demand: &Demand) {
        let mut open: BTreeMap<Profile, u32> = demand.iter().map(|(profile, n)| (profile.clone(), n)).collect();
        // New instances were made to serve, so they come first.
        let new = |changes: &[Change], name: &str, instance: &Instance| {
            changes
                .iter()
                .any(|change| change.gpu == name && change.created.contains(instance))
        };
        let mut take = |instance: &Instance| match open.get_mut(&instance.profile) {
            Some(n) if *n > 0 => {
                *n -= 1;
                true
            }
            _ => false,
        };
        let mut chosen = vec![false; self.serving.len()];
        for pass in [true, false] {
            for (at, (name, instance)) in self.serving.iter().enumerate() {
                if new(&self.changes, name, instance) == pass {
                    chosen[at] = take(instance);
                }
            }
        }
        let mut at = chosen.into_iter();
        self.serving.retain(|_| at.next().unwrap_or(false));
    }
}

/// The cheapest choice, level by level, and the proven least of each level.
fn least(model: &mut Model, mut choice: Vec<u32>) -> Result<(Vec<u32>, Cost), PlanError> {
    let mut limits: Vec<(usize, u32)> = Vec::new();
    let mut at_least = [0; 4];
    for level in 0..4 {
        let stage = Stage {
            goal: Goal::Cost(level),
            limits: limits.clone(),
        };
        let found = minimise(model, &stage, choice).ok_or(PlanError::Undecided { unserved: 0 })?;
        at_least[level] = found.at_least;
        // Once a level is above its least, what follows depends on it: nothing is proven of the levels after it.
        if limits.iter().any(|&(level, value)| at_least[level] < value) {
            at_least[level] = 0;
        }
        if found.value > 0 {
            limits.push((level, found.value));
        }
        choice = found.choice;
    }
    Ok((choice, at_least.into()))
}
