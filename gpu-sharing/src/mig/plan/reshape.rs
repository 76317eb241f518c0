use std::collections::BTreeMap;

use super::{
    Cost, Plan,
    change::Change,
    options::{Way, each_way},
    plan,
};
use crate::mig::{Demand, Fleet, GpuState, Instance, Mode, PlanError, Profile, loss::Losses};

/// What a GPU is to be, as a MIG configuration file says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// MIG mode off.
    Disabled,
    /// MIG mode on and exactly these instances, wherever they lie.
    Instances(Demand),
}

/// The plan that gives each named GPU exactly the instances that are declared for it, at the least [`Cost`].
///
/// Pinned instances count as declared ones and stay; so do as many idle ones as can. GPUs that are not named stay as they
/// are. The plan is always proven to be the least. `serving` lists all instances of the named GPUs afterwards.
///
/// # Errors
///
/// [`PlanError::Unknown`] for a name that is not in the fleet, [`PlanError::Unavailable`] for a GPU that may not be changed;
/// [`PlanError::Pinned`] if a pinned instance is not among the declared ones; [`PlanError::NotOffered`] and
/// [`PlanError::Short`] as for [`plan`], for that GPU alone; [`PlanError::Blocked`] if the instances fit the GPU, but not
/// beside the pinned ones where those lie now.
pub fn reshape(fleet: &Fleet, wanted: &BTreeMap<String, Wanted>) -> Result<Plan, PlanError> {
    if let Some(gpu) = wanted.keys().find(|name| fleet.gpu(name).is_none()) {
        return Err(PlanError::Unknown { gpu: gpu.clone() });
    }
    let mut plan = Plan {
        changes: Vec::new(),
        serving: Vec::new(),
        cost: Cost::default(),
        at_least: Cost::default(),
    };
    for gpu in fleet.gpus() {
        match wanted.get(&gpu.name) {
            None => plan.cost.loss += loss_now(gpu),
            Some(_) if gpu.mode == Mode::Unavailable => {
                return Err(PlanError::Unavailable { gpu: gpu.name.clone() });
            }
            Some(Wanted::Disabled) => plan.disable(gpu)?,
            Some(Wanted::Instances(demand)) => plan.reshape(gpu, demand)?,
        }
    }
    plan.at_least = plan.cost;
    Ok(plan)
}

fn loss_now(gpu: &GpuState) -> u32 {
    let placed = [gpu.placed(true), gpu.placed(false)].concat();
    match gpu.mode {
        Mode::Unavailable => 0,
        _ => Losses::new(&gpu.board).of(placed.iter().fold(0, |mask, (_, placement)| mask | placement.mask())),
    }
}

impl Plan {
    fn disable(&mut self, gpu: &GpuState) -> Result<(), PlanError> {
        if let Some(held) = gpu.instances.iter().find(|held| held.pinned) {
            return Err(PlanError::Pinned {
                gpu: gpu.name.clone(),
                instance: held.instance.clone(),
            });
        }
        if gpu.mode == Mode::Disabled {
            return Ok(());
        }
        let mut destroyed: Vec<_> = gpu.instances.iter().map(|held| held.instance.clone()).collect();
        destroyed.sort();
        self.cost.destroyed += u32::try_from(destroyed.len()).unwrap_or(u32::MAX);
        self.cost.touched += 1;
        self.cost.mode_changes += 1;
        let (gpu, board) = (gpu.name.clone(), gpu.board.to_string());
        self.changes.push(Change {
            gpu,
            board,
            mode: Some(false),
            destroyed,
            created: Vec::new(),
        });
        Ok(())
    }

    fn reshape(&mut self, gpu: &GpuState, demand: &Demand) -> Result<(), PlanError> {
        let mut open: BTreeMap<&Profile, u32> = demand.iter().collect();
        for held in gpu.instances.iter().filter(|held| held.pinned) {
            match open.get_mut(&held.instance.profile) {
                Some(n) if *n > 0 => *n -= 1,
                _ => {
                    return Err(PlanError::Pinned {
                        gpu: gpu.name.clone(),
                        instance: held.instance.clone(),
                    });
                }
            }
        }
        let open: Demand = open.into_iter().map(|(profile, n)| (profile.clone(), n)).collect();
        if let Some((profile, _)) = demand.iter().find(|(profile, _)| gpu.board.index(profile).is_none()) {
            return Err(if profile.compute_slices() == profile.slices() {
                PlanError::NotOffered {
                    profile: profile.clone(),
                    boards: vec![gpu.board.to_string()],
                }
            } else {
                PlanError::ComputeInstance {
                    profile: profile.clone(),
                }
            });
        }
        let mut losses = Losses::new(&gpu.board);
        let way = exact(gpu, &open, &mut losses).ok_or_else(|| refusal(gpu, demand, &open))?;
        self.apply(gpu, &way);
        Ok(())
    }

    fn apply(&mut self, gpu: &GpuState, way: &Way) {
        let instance = |&(index, placement): &(usize, _)| Instance {
            placement,
            profile: gpu.board.profile(index).clone(),
        };
        let mut after: Vec<_> = gpu
            .placed(true)
            .iter()
            .chain(&way.kept)
            .chain(&way.created)
            .map(instance)
            .collect();
        after.sort();
        self.serving
            .extend(after.into_iter().map(|instance| (gpu.name.clone(), instance)));
        let [destroyed, mut touched, mut mode_changes, loss] = way.cost;
        let enable = gpu.mode == Mode::Disabled;
        if enable {
            (touched, mode_changes) = (1, 1); // also where no instance is wanted
        }
        self.cost.destroyed += destroyed;
        self.cost.touched += touched;
        self.cost.mode_changes += mode_changes;
        self.cost.loss += loss;
        if touched > 0 {
            self.changes.push(Change {
                gpu: gpu.name.clone(),
                board: gpu.board.to_string(),
                mode: enable.then_some(true),
                destroyed: gpu
                    .placed(false)
                    .iter()
                    .filter(|at| !way.kept.contains(at))
                    .map(instance)
                    .collect(),
                created: way.created.iter().map(instance).collect(),
            });
        }
    }
}

/// The cheapest way to have exactly these besides the pinned ones.
fn exact(gpu: &GpuState, open: &Demand, losses: &mut Losses) -> Option<Way> {
    let counts: Vec<_> = gpu
        .board
        .profiles()
        .iter()
        .map(|spec| open.count(&spec.profile))
        .collect();
    let wanted: Vec<_> = counts.iter().map(|&n| n > 0).collect();
    let mut best: Option<Way> = None;
    each_way(gpu, &wanted, losses, &mut |_, kept, created, cost| {
        let mut left = counts.clone();
        let fits = kept
            .iter()
            .chain(created)
            .all(|&(index, _)| match left[index].checked_sub(1) {
                Some(n) => {
                    left[index] = n;
                    true
                }
                None => false,
            });
        let better = best.as_ref().is_none_or(|best| cost < best.cost);
        if fits && better && left.iter().all(|&n| n == 0) {
            best = Some(Way {
                kept: kept.to_vec(),
                created: created.to_vec(),
                cost,
            });
        }
    });
    best
}

/// Why a GPU cannot be what is declared: too much for the GPU, or for what its pinned instances leave.
fn refusal(gpu: &GpuState, demand: &Demand, open: &Demand) -> PlanError {
    let alone = |gpu: GpuState, demand: &Demand| match Fleet::new([gpu]) {
        Ok(fleet) => plan(&fleet, demand).err(),
        Err(_) => None,
    };
    let empty = GpuState {
        instances: Vec::new(),
        mode: Mode::Enabled,
        ..gpu.clone()
    };
    if let Some(error) = alone(empty, demand) {
        return error;
    }
    let pinned: Vec<_> = gpu
        .instances
        .iter()
        .filter(|held| held.pinned)
        .map(|held| held.instance.clone())
        .collect();
    match alone(gpu.clone(), open) {
        Some(PlanError::Short(shortage)) => PlanError::Blocked {
            gpu: gpu.name.clone(),
            pinned,
            shortage,
        },
        Some(error) => error,
        None => PlanError::Undecided { unserved: 0 },
    }
}
