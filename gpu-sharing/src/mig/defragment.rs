use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;

use crate::mig::{
    Board, Change, Compute, ComputeChange, Cost, Demand, Fleet, GpuState, Held, Instance, Mode, Placement, Plan,
    Profile, loss::loss_now, plan,
};

/// A plan that moves instances together so that a block becomes free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Defragmentation {
    /// The GPU that gains a free block.
    pub gpu: String,
    /// The block.
    pub block: Placement,
    /// What fits there then.
    pub profile: Profile,
    /// What moves: no more than was allowed. No fewer would do for this block where the plan's
    /// [`at_least`](Plan::at_least) says that as many have to be destroyed, as it always does up to twelve GPUs.
    pub moves: Vec<Move>,
    /// The moves as changes; there is no way to move an instance but to make another and destroy the first.
    pub plan: Plan,
}

/// An instance that is destroyed in one place and made in another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Move {
    /// What is moved.
    pub profile: Profile,
    /// The GPU and the place that it leaves.
    pub from: (String, Placement),
    /// The GPU and the place that it gets.
    pub to: (String, Placement),
}

/// Frees a larger block than there is, the largest that at most `moves` moves can free.
///
/// Instances that are not pinned may move, to any available GPU with MIG mode on, and all of them are still there
/// afterwards. `None` if no larger block can be freed, or, beyond twelve GPUs, if no way to was found. Blocks are compared by the
/// share of their GPU.
///
/// ```
/// use std::sync::Arc;
/// use gpu_sharing::mig::{Catalogue, Fleet, Geometry, GpuState, Held, Mode, defragment};
///
/// let board = Catalogue::builtin().board("H100-80GB").unwrap();
/// let gpu = |name: &str| -> Result<_, Box<dyn std::error::Error>> {
///     let instances = Geometry::new(board, [("3g.40gb".parse()?, 4)])?;
///     let held = |instance: &gpu_sharing::mig::Instance| Held::whole(instance.clone(), false);
///     let instances = instances.instances().iter().map(held).collect();
///     Ok(GpuState { name: name.into(), board: Arc::clone(board), mode: Mode::Enabled, instances })
/// };
/// let fleet = Fleet::new([gpu("gpu-0")?, gpu("gpu-1")?])?;
///
/// let found = defragment(&fleet, 1).expect("two halves make a whole");
/// assert_eq!((found.profile.as_str(), found.moves.len()), ("7g.80gb", 1));
/// assert_eq!(defragment(&fleet, 0), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn defragment(fleet: &Fleet, moves: u32) -> Option<Defragmentation> {
    let mut shapes: Vec<_> = fleet
        .gpus()
        .iter()
        .filter(|gpu| gpu.mode == Mode::Enabled)
        .flat_map(shapes)
        .collect();
    shapes.sort_by(|a, b| b.cmp(a));
    shapes.dedup();
    for (_, profile) in shapes {
        if fleet.gpus().iter().any(|gpu| has_room(gpu, &profile)) {
            return None;
        }
        if let Some(found) = free(fleet, &profile, moves) {
            return Some(found);
        }
    }
    None
}

/// Makes room for one more instance of a profile by as few moves as can be, and at most `moves`.
///
/// As [`defragment`], but for one profile. `None` also if there is room already.
pub fn free(fleet: &Fleet, profile: &Profile, moves: u32) -> Option<Defragmentation> {
    if fleet.gpus().iter().any(|gpu| has_room(gpu, profile)) {
        return None;
    }
    let all: Demand = fleet
        .gpus()
        .iter()
        .filter(|gpu| gpu.mode == Mode::Enabled)
        .flat_map(|gpu| gpu.instances.iter().filter(|held| !held.pinned))
        .map(|held| (held.instance.profile.clone(), 1))
        .collect();
    let mut best: Option<Defragmentation> = None;
    for (direct, at, block) in candidates(fleet, profile) {
        // Each instance in the block moves; others may have to make room for it.
        let most = best
            .as_ref()
            .map_or(moves, |best| count(&best.moves).saturating_sub(1).min(moves));
        if direct > most {
            break;
        }
        let found = clear(fleet, at, profile, block, &all);
        best = found.filter(|found| count(&found.moves) <= most).or(best);
    }
    best
}

/// The profiles of a GPU, each with its [`size`](Board::size).
fn shapes(gpu: &GpuState) -> Vec<((u32, Reverse<usize>), Profile)> {
    let shape = |profile: Profile| Some((gpu.board.size(gpu.board.index(&profile)?), profile));
    gpu.board.base_profiles().into_iter().filter_map(shape).collect()
}

fn has_room(gpu: &GpuState, profile: &Profile) -> bool {
    gpu.mode == Mode::Enabled
        && blocks(&gpu.board, profile).iter().any(|block| {
            let with = gpu.instances.iter().map(|held| held.instance.clone());
            let more = Instance {
                placement: *block,
                profile: profile.clone(),
            };
            crate::mig::Geometry::from_instances(&gpu.board, with.chain([more])).is_ok()
        })
}

fn blocks(board: &Board, profile: &Profile) -> Vec<Placement> {
    board
        .spec(profile)
        .map(|spec| spec.placements.clone())
        .unwrap_or_default()
}

/// Blocks that hold no pinned instance: how many instances they hold, the GPU and the block; fewest first.
fn candidates(fleet: &Fleet, profile: &Profile) -> Vec<(u32, usize, Placement)> {
    let mut found = Vec::new();
    for (at, gpu) in fleet
        .gpus()
        .iter()
        .enumerate()
        .filter(|(_, gpu)| gpu.mode == Mode::Enabled)
    {
        for block in blocks(&gpu.board, profile) {
            let inside = || {
                gpu.instances
                    .iter()
                    .filter(|held| held.instance.placement.overlaps(block))
            };
            if inside().all(|held| !held.pinned) {
                found.push((u32::try_from(inside().count()).unwrap_or(u32::MAX), at, block));
            }
        }
    }
    found.sort_unstable();
    found
}

/// The moves that clear one block: the fleet is planned anew with the block taken and everything that can move wanted.
fn clear(fleet: &Fleet, at: usize, profile: &Profile, block: Placement, all: &Demand) -> Option<Defragmentation> {
    let target = &fleet.gpus()[at];
    let (out, stay): (Vec<_>, Vec<_>) = target
        .instances
        .iter()
        .cloned()
        .partition(|held| held.instance.placement.overlaps(block));
    let taken = Held::whole(
        Instance {
            placement: block,
            profile: profile.clone(),
        },
        true,
    );
    let mut gpus = fleet.gpus().to_vec();
    gpus[at].instances = stay.into_iter().chain([taken]).collect();
    // GPU instances move as they are, with the compute instances in them.
    let all_held = gpus.iter_mut().flat_map(|gpu| &mut gpu.instances);
    all_held.for_each(|held| held.compute = Compute::Whole);
    // Nothing is switched on for a move.
    gpus.iter_mut()
        .filter(|gpu| gpu.mode == Mode::Disabled)
        .for_each(|gpu| gpu.mode = Mode::Unavailable);
    let without = Fleet::new(gpus).ok()?;
    let mut found = plan(&without, all).ok()?;
    let change = found.changes.iter_mut().find(|change| change.gpu == target.name);
    // What is in the block moves in any case. Of what the other levels come to without it, that plan says nothing.
    found.at_least = Cost {
        destroyed: found.at_least.destroyed + count(&out),
        ..Cost::default()
    };
    let gone = out.into_iter().map(|held| held.instance);
    match change {
        Some(change) => change.destroyed.extend(gone),
        None => found.changes.push(Change {
            gpu: target.name.clone(),
            board: target.board.to_string(),
            mode: None,
            destroyed: gone.collect(),
            created: Vec::new(),
            compute: Vec::new(),
        }),
    }
    let order: BTreeMap<&str, usize> = fleet
        .gpus()
        .iter()
        .enumerate()
        .map(|(at, gpu)| (gpu.name.as_str(), at))
        .collect();
    found
        .changes
        .sort_by_key(|change| order.get(change.gpu.as_str()).copied());
    found.changes.iter_mut().for_each(|change| change.destroyed.sort());
    let moves = moves(&found.changes);
    carry_over(fleet, &moves, &mut found.changes);
    found.cost = cost(fleet, &found)?;
    Some(Defragmentation {
        gpu: target.name.clone(),
        block,
        profile: profile.clone(),
        moves,
        plan: found,
    })
}

/// What was divided is divided the same where it gets to.
fn carry_over(fleet: &Fleet, moves: &[Move], changes: &mut [Change]) {
    for one in moves {
        let held = fleet.gpu(&one.from.0).and_then(|gpu| {
            let mut held = gpu.instances.iter();
            held.find(|held| (held.instance.placement, &held.instance.profile) == (one.from.1, &one.profile))
        });
        let Some(held) = held.filter(|held| !held.compute.is_whole()) else {
            continue;
        };
        let mut created = held.parts();
        created.sort_unstable_by_key(|part| (Reverse(part.slices), part.start));
        if let Some(change) = changes.iter_mut().find(|change| change.gpu == one.to.0) {
            change.compute.push(ComputeChange {
                instance: Instance {
                    placement: one.to.1,
                    profile: one.profile.clone(),
                },
                destroyed: Vec::new(),
                created,
            });
        }
    }
}

fn cost(fleet: &Fleet, plan: &Plan) -> Option<Cost> {
    let after = plan.after(fleet).ok()?;
    Some(Cost {
        destroyed: plan.changes.iter().map(|change| count(&change.destroyed)).sum(),
        touched: count(&plan.changes),
        mode_changes: 0,
        loss: after.gpus().iter().map(loss_now).sum(),
    })
}

/// What goes and what comes, paired by profile in the order of the fleet.
fn moves(changes: &[Change]) -> Vec<Move> {
    let mut new: BTreeMap<&Profile, Vec<(String, Placement)>> = BTreeMap::new();
    for change in changes.iter().rev() {
        for instance in change.created.iter().rev() {
            new.entry(&instance.profile)
                .or_default()
                .push((change.gpu.clone(), instance.placement));
        }
    }
    let old = changes
        .iter()
        .flat_map(|change| change.destroyed.iter().map(|instance| (change.gpu.clone(), instance)));
    let pair = |(gpu, instance): (String, &Instance)| {
        let to = new.get_mut(&instance.profile)?.pop()?;
        Some(Move {
            profile: instance.profile.clone(),
            from: (gpu, instance.placement),
            to,
        })
    };
    old.filter_map(pair).collect()
}

fn count<T>(items: &[T]) -> u32 {
    u32::try_from(items.len()).unwrap_or(u32::MAX)
}
