use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use super::{
    Cost, Plan,
    change::{Change, ComputeChange},
    options::{Way, each_way},
    plan,
};
use crate::mig::{
    Demand, Fleet, Geometry, GpuState, Held, Mode, Part, Placement, PlanError,
    compute::{Division, divide, fewest, sizes},
    loss::{Losses, loss, loss_now},
};

/// What a GPU is to be, as a MIG configuration file says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// MIG mode off.
    Disabled,
    /// MIG mode on and exactly these instances, wherever they lie. Compute instances (`1c.3g.40gb`) are packed into as few GPU
    /// instances as least disruption allows.
    Instances(Demand),
    /// MIG mode on and exactly these instances, each in its place and with its compute instances; `pinned` is not looked at.
    Exactly(Vec<Held>),
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
            Some(Wanted::Exactly(wanted)) => plan.place(gpu, wanted)?,
        }
    }
    plan.at_least = plan.cost;
    Ok(plan)
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
        self.cost.destroyed += gpu.instances.iter().map(Held::weight).sum::<u32>();
        self.push(Change {
            gpu: gpu.name.clone(),
            board: gpu.board.to_string(),
            mode: Some(false),
            destroyed,
            created: Vec::new(),
            compute: Vec::new(),
        });
        Ok(())
    }

    /// Keeps what is where it is wanted.
    fn place(&mut self, gpu: &GpuState, wanted: &[Held]) -> Result<(), PlanError> {
        let instances = wanted.iter().map(|held| held.instance.clone());
        let geometry = Geometry::from_instances(&gpu.board, instances).map_err(|source| PlanError::Geometry {
            gpu: gpu.name.clone(),
            source,
        })?;
        let pinned = |held: &Held| PlanError::Pinned {
            gpu: gpu.name.clone(),
            instance: held.instance.clone(),
        };
        let mut change = Change {
            gpu: gpu.name.clone(),
            board: gpu.board.to_string(),
            mode: (gpu.mode == Mode::Disabled).then_some(true),
            destroyed: Vec::new(),
            created: Vec::new(),
            compute: Vec::new(),
        };
        for held in &gpu.instances {
            let Some(target) = wanted.iter().find(|target| target.instance == held.instance) else {
                if held.pinned {
                    return Err(pinned(held));
                }
                change.destroyed.push(held.instance.clone());
                self.cost.destroyed += held.weight();
                continue;
            };
            let recut = ComputeChange {
                instance: held.instance.clone(),
                destroyed: beyond(&target.parts(), held.parts()),
                created: idle(beyond(&held.parts(), target.parts())),
            };
            if recut.destroyed.iter().any(|part| part.pinned) {
                return Err(pinned(held));
            }
            self.cost.destroyed += u32::try_from(recut.destroyed.len()).unwrap_or(u32::MAX);
            if !(recut.destroyed.is_empty() && recut.created.is_empty()) {
                change.compute.push(recut);
            }
        }
        for target in wanted {
            if gpu.instances.iter().any(|held| held.instance == target.instance) {
                continue;
            }
            change.created.push(target.instance.clone());
            if !target.compute.is_whole() {
                change.compute.push(ComputeChange {
                    instance: target.instance.clone(),
                    destroyed: Vec::new(),
                    created: idle(beyond(&[], target.parts())),
                });
            }
        }
        change.destroyed.sort();
        change.created.sort();
        self.cost.loss += loss(&gpu.board, &geometry);
        self.serving.extend(
            geometry
                .instances()
                .iter()
                .map(|instance| (gpu.name.clone(), instance.clone())),
        );
        self.push(change);
        Ok(())
    }

    fn reshape(&mut self, gpu: &GpuState, demand: &Demand) -> Result<(), PlanError> {
        let rows = Row::all(gpu, demand)?;
        let mut losses = Losses::new(&gpu.board);
        let (way, divisions) = exact(gpu, &rows, &mut losses).ok_or_else(|| refusal(gpu, &rows))?;
        let mut after: Vec<_> = way.after(gpu).into_iter().map(|at| gpu.board.instance(at)).collect();
        after.sort();
        let after = after.into_iter().map(|instance| (gpu.name.clone(), instance));
        self.serving.extend(after);
        let change = way.change(gpu, divisions);
        self.cost.destroyed += way.cost[0];
        self.cost.loss += way.cost[3];
        self.push(change);
        Ok(())
    }

    /// A change, if it is one: switching MIG on is, also where no instance is wanted.
    fn push(&mut self, change: Change) {
        if change.mode.is_some() || !change.leaves_instances() {
            self.cost.touched += 1;
            self.cost.mode_changes += u32::from(change.mode.is_some());
            self.changes.push(change);
        }
    }
}

/// The parts that are not among others, largest first.
fn beyond(others: &[Part], mut parts: Vec<Part>) -> Vec<Part> {
    let is = |part: &Part, other: &Part| (part.start, part.slices) == (other.start, other.slices);
    parts.retain(|part| !others.iter().any(|other| is(part, other)));
    parts.sort_unstable_by_key(|part| (Reverse(part.slices), part.start));
    parts
}

fn idle(parts: Vec<Part>) -> Vec<Part> {
    let idle = |part| Part { pinned: false, ..part };
    parts.into_iter().map(idle).collect()
}

/// What is declared of one GPU instance profile.
#[derive(Debug)]
struct Row {
    /// The profile in the board.
    index: usize,
    /// Compute slices of the GPU instance.
    whole: u32,
    /// Compute instances by size, and how many.
    parts: Vec<(u32, u32)>,
    /// The fewest GPU instances that hold them.
    fewest: u32,
}

impl Row {
    /// The rows of a declaration, once it is known that the GPU offers all of it and that it has all that is in use.
    fn all(gpu: &GpuState, demand: &Demand) -> Result<Vec<Self>, PlanError> {
        let mut rows: Vec<Self> = Vec::new();
        for (profile, n) in demand.iter() {
            let not_offered = || PlanError::NotOffered {
                profile: profile.clone(),
                boards: vec![gpu.board.to_string()],
            };
            let index = gpu.board.index(&profile.gpu_instance()).ok_or_else(not_offered)?;
            let whole = profile.slices();
            if !sizes(whole).any(|size| size == profile.compute_slices()) {
                return Err(not_offered());
            }
            let part = (profile.compute_slices(), n);
            match rows.iter_mut().find(|row| row.index == index) {
                Some(row) => row.parts.push(part),
                None => rows.push(Self {
                    index,
                    whole,
                    parts: vec![part],
                    fewest: 0,
                }),
            }
        }
        for row in &mut rows {
            row.parts.sort_unstable_by(|a, b| b.cmp(a));
            row.fewest = fewest(row.whole, &row.parts).unwrap_or(u32::MAX);
        }
        for held in gpu.instances.iter().filter(|held| held.pinned) {
            let row = rows
                .iter()
                .find(|row| gpu.board.profile(row.index) == &held.instance.profile);
            if !row.is_some_and(|row| row.has(gpu, held)) {
                return Err(PlanError::Pinned {
                    gpu: gpu.name.clone(),
                    instance: held.instance.clone(),
                });
            }
        }
        Ok(rows)
    }

    /// Whether of each size that is in use in an instance as many are declared as are in use on the GPU.
    fn has(&self, gpu: &GpuState, held: &Held) -> bool {
        let same = gpu
            .instances
            .iter()
            .filter(|other| other.instance.profile == held.instance.profile);
        let in_use: Vec<_> = same.flat_map(Held::parts).filter(|part| part.pinned).collect();
        let used =
            |size: u32| u32::try_from(in_use.iter().filter(|part| part.slices == size).count()).unwrap_or(u32::MAX);
        let declared = |part: &Part| {
            self.parts
                .iter()
                .any(|&(size, n)| size == part.slices && used(size) <= n)
        };
        held.parts().iter().filter(|part| part.pinned).all(declared)
    }

    fn count(&self) -> u32 {
        self.parts.iter().map(|&(_, n)| n).fold(0, u32::saturating_add)
    }
}

/// The cheapest way to have exactly what is declared.
fn exact(gpu: &GpuState, rows: &[Row], losses: &mut Losses) -> Option<(Way, Vec<ComputeChange>)> {
    let slots = u32::from(gpu.board.memory_slots());
    if rows.iter().any(|row| row.fewest > slots) {
        return None;
    }
    let wanted: Vec<_> = (0..gpu.board.rules().len())
        .map(|index| rows.iter().any(|row| row.index == index))
        .collect();
    let parts = |at: (usize, Placement)| gpu.held(at).map(Held::parts).unwrap_or_default();
    let mut known: HashMap<(usize, Vec<Placement>, usize), Option<Division>> = HashMap::new();
    let mut best: Option<(Way, Vec<ComputeChange>)> = None;
    let pinned = gpu.placed(true);
    each_way(gpu, &wanted, losses, &mut |_, kept, created, mut cost| {
        let fits = |row: &Row| {
            let all = pinned.iter().chain(kept).chain(created);
            let n = u32::try_from(all.filter(|(index, _)| *index == row.index).count()).unwrap_or(u32::MAX);
            (row.fewest..=row.count()).contains(&n)
        };
        let declared = |&(index, _): &(usize, Placement)| wanted[index];
        if !kept.iter().all(declared) || !rows.iter().all(fits) {
            return;
        }
        let mut changes = Vec::new();
        for row in rows {
            let stay = pinned.iter().chain(kept).filter(|(index, _)| *index == row.index);
            let stay: Vec<_> = stay.map(|&(_, placement)| placement).collect();
            let new: Vec<_> = created.iter().filter(|(index, _)| *index == row.index).collect();
            let division = known.entry((row.index, stay.clone(), new.len())).or_insert_with(|| {
                let instances = stay.iter().map(|&placement| parts((row.index, placement)));
                let instances: Vec<_> = instances.chain(new.iter().map(|_| Vec::new())).collect();
                divide(row.whole, &instances, &row.parts)
            });
            let Some(division) = division else { return };
            cost[0] += division.destroyed;
            let places = stay.iter().copied().chain(new.iter().map(|(_, placement)| *placement));
            let whole = [Part::whole(gpu.board.profile(row.index))];
            for (at, (placement, (destroyed, made))) in places.zip(&division.changes).enumerate() {
                let usual = at >= stay.len() && **made == whole;
                if !(usual || destroyed.is_empty() && made.is_empty()) {
                    changes.push(ComputeChange {
                        instance: gpu.board.instance((row.index, placement)),
                        destroyed: destroyed.clone(),
                        created: made.clone(),
                    });
                }
            }
        }
        if !changes.is_empty() {
            cost[1] = 1;
        }
        if best.as_ref().is_none_or(|(best, _)| cost < best.cost) {
            let way = Way {
                kept: kept.to_vec(),
                created: created.to_vec(),
                cuts: Vec::new(),
                cost,
            };
            best = Some((way, changes));
        }
    });
    best
}

/// Why a GPU cannot be what is declared: too much for the GPU, or for what its pinned instances leave.
fn refusal(gpu: &GpuState, rows: &[Row]) -> PlanError {
    let alone = |gpu: GpuState, demand: &Demand| match Fleet::new([gpu]) {
        Ok(fleet) => plan(&fleet, demand).err(),
        Err(_) => None,
    };
    let whole = |row: &Row| (gpu.board.profile(row.index).clone(), row.fewest);
    let demand: Demand = rows.iter().map(whole).collect();
    let empty = GpuState {
        instances: Vec::new(),
        ..gpu.clone()
    };
    if let Some(error) = alone(empty, &demand) {
        return error;
    }
    let pinned: Vec<_> = gpu
        .instances
        .iter()
        .filter(|held| held.pinned)
        .map(|held| held.instance.clone())
        .collect();
    let open = demand.iter().map(|(profile, n)| {
        let used = pinned.iter().filter(|instance| instance.profile == *profile).count();
        (
            profile.clone(),
            n.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX)),
        )
    });
    match alone(gpu.clone(), &open.collect()) {
        Some(PlanError::Short(shortage)) => PlanError::Blocked {
            gpu: gpu.name.clone(),
            pinned,
            shortage,
        },
        Some(error) => error,
        // The GPU instances have room: it is their compute instances in use that lie in the way.
        None => match pinned.into_iter().next() {
            Some(instance) => PlanError::Pinned {
                gpu: gpu.name.clone(),
                instance,
            },
            None => PlanError::Undecided { unserved: 0 },
        },
    }
}
