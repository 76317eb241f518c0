//! A first choice for a fleet: the largest profiles first, each where it takes least from those that are still to come.
//!
//! On boards whose placements nest, and where no profile is offered by two boards or takes an engine, this serves all GPU instances
//! that can be served. It looks at pinned instances only; the passes after it find out which idle ones can stay.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::table::Table;
use crate::mig::{
    Board, Fleet, GpuState, Mode, Profile,
    compute::{Choice, supplies},
    geometry::Load,
    loss::Losses,
};

/// A GPU that is being filled.
struct Filling<'a> {
    gpu: &'a GpuState,
    board: usize,
    occupied: u32,
    load: Load,
    /// How many of each row were placed.
    served: Vec<(u16, u8)>,
}

/// What one GPU instance is made for: rows, and how many of each.
type Unit = Vec<(u16, u8)>;

/// An option for each GPU that serves at least what fell on it; `order` is the rows, largest profile first.
pub(super) fn fill(table: &Table, fleet: &Fleet, order: &[usize], wanted: &[u32]) -> Vec<u32> {
    let mut losses: Vec<_> = table.boards.iter().map(|(board, _)| Losses::new(board)).collect();
    let mut gpus: Vec<_> = fleet.gpus().iter().map(|gpu| Filling::new(table, gpu)).collect();
    let mut done: Vec<Profile> = Vec::new();
    for &row in order {
        let profile = table.profiles[row].gpu_instance();
        if done.contains(&profile) {
            continue; // compute instances of one GPU instance are filled in together
        }
        let to_come = |index: usize, board: &Board| {
            let other = board.profile(index);
            *other != profile && !done.contains(other) && table.profiles.iter().any(|p| p.gpu_instance() == *other)
        };
        let mut rest: Vec<_> = table
            .boards
            .iter()
            .map(|(board, _)| Losses::only(board, |index| to_come(index, board)))
            .collect();
        let index: Vec<_> = table.boards.iter().map(|(board, _)| board.index(&profile)).collect();
        let mut queue = BinaryHeap::new();
        let mut offer = |gpus: &[Filling<'_>], at: usize| {
            let gpu = &gpus[at];
            let (delta, mask) = gpu.best(index[gpu.board]?, &mut rest[gpu.board], &mut losses[gpu.board])?;
            Some(Reverse((delta, at, mask)))
        };
        queue.extend((0..gpus.len()).filter_map(|at| offer(&gpus, at)));
        for unit in units(table, &profile, wanted) {
            let Some(Reverse((_, at, mask))) = queue.pop() else {
                break;
            };
            let gpu = &mut gpus[at];
            gpu.occupied |= mask;
            index[gpu.board].into_iter().for_each(|index| gpu.load.add(index));
            for (row, more) in unit {
                match gpu.served.iter_mut().find(|(r, _)| *r == row) {
                    Some((_, n)) => *n += more,
                    None => gpu.served.push((row, more)),
                }
            }
            queue.extend(offer(&gpus, at));
        }
        done.push(profile);
    }
    gpus.iter()
        .zip(&table.groups)
        .map(|(gpu, options)| gpu.option(table, options))
        .collect()
}

/// The GPU instances that what is wanted of one profile takes, each divided so that it serves the most slices. They may be more
/// than any fleet has, so each is made when it is asked for.
fn units(table: &Table, profile: &Profile, wanted: &[u32]) -> impl Iterator<Item = Unit> {
    let rows: Vec<_> = (0..wanted.len())
        .filter(|&row| table.profiles[row].gpu_instance() == *profile)
        .collect();
    let sizes: Vec<_> = rows.iter().map(|&row| table.profiles[row].compute_slices()).collect();
    let mut open: Vec<_> = rows.iter().map(|&row| wanted[row]).collect();
    let choices = supplies(profile.slices(), &[], &sizes);
    std::iter::from_fn(move || {
        let served =
            |choice: &Choice| -> Vec<u32> { choice.counts.iter().zip(&open).map(|(n, open)| *n.min(open)).collect() };
        let slices = |served: &Vec<u32>| served.iter().zip(&sizes).map(|(n, size)| n * size).sum::<u32>();
        let served = choices.iter().map(served);
        let best = served.max_by_key(slices).filter(|best| slices(best) > 0)?;
        open.iter_mut().zip(&best).for_each(|(open, n)| *open -= n);
        let row = |(&row, &n): (&usize, &u32)| Some((u16::try_from(row).ok()?, u8::try_from(n).ok()?));
        Some(rows.iter().zip(&best).filter_map(row).filter(|&(_, n)| n > 0).collect())
    })
}

impl<'a> Filling<'a> {
    fn new(table: &Table, gpu: &'a GpuState) -> Self {
        let board = table
            .boards
            .iter()
            .position(|(board, _)| *board == gpu.board)
            .unwrap_or(0);
        let mut load = Load::new(&gpu.board);
        let mut occupied = 0;
        if gpu.mode == Mode::Unavailable {
            occupied = u32::MAX;
        } else {
            for (index, placement) in gpu.placed(true) {
                load.add(index);
                occupied |= placement.mask();
            }
        }
        Self {
            gpu,
            board,
            occupied,
            load,
            served: Vec::new(),
        }
    }

    /// The least loss that placing the profile adds, for those to come and for all, and the slots it takes then.
    fn best(&self, index: usize, rest: &mut Losses, all: &mut Losses) -> Option<((u32, u32), u32)> {
        if !self.load.admits(&self.gpu.board, index) {
            return None;
        }
        let free = self.gpu.board.rules()[index]
            .placements
            .iter()
            .filter(|(_, mask)| self.occupied & mask == 0);
        let mut adds = |mask: u32| {
            [&mut *rest, &mut *all].map(|losses| losses.of(self.occupied | mask) - losses.of(self.occupied))
        };
        free.map(|&(_, mask)| (adds(mask).into(), mask)).min()
    }

    fn option(&self, table: &Table, options: &[u32]) -> u32 {
        let enough = |&&option: &&u32| {
            let supply = table.pool.supply(option);
            self.served
                .iter()
                .all(|(row, n)| supply.iter().any(|(r, more)| r == row && more >= n))
        };
        // In order of their cost; the first is to change nothing.
        options.iter().find(enough).or(options.first()).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::mig::{
        Catalogue, Demand, Geometry, Held, Instance, Placement,
        plan::model::{Goal, Model, Stage},
    };

    fn gpu(name: String, instances: Vec<Held>) -> GpuState {
        GpuState {
            name,
            board: Arc::clone(Catalogue::builtin().board("H100-80GB").unwrap()),
            mode: Mode::Enabled,
            instances,
        }
    }

    /// GPUs whose pinned instances leave room for the demand: both were laid side by side.
    fn feasible() -> impl Strategy<Value = (Fleet, Demand)> {
        let one = (any::<prop::sample::Index>(), prop::bool::weighted(0.3));
        let tries = prop::collection::vec(prop::collection::vec(one, 0..=9), 1..=4);
        tries.prop_map(|gpus| {
            let board = Catalogue::builtin().board("H100-80GB").unwrap();
            let places: Vec<Instance> = board
                .profiles()
                .iter()
                .filter(|spec| spec.profile.attributes().next().is_none())
                .flat_map(|spec| {
                    let at = |&placement| Instance {
                        placement,
                        profile: spec.profile.clone(),
                    };
                    spec.placements.iter().map(at)
                })
                .collect();
            let mut demand = Demand::default();
            let mut states = Vec::new();
            for (at, tries) in gpus.into_iter().enumerate() {
                let mut all: Vec<Instance> = Vec::new();
                let mut pinned = Vec::new();
                for (place, is_pinned) in tries {
                    let instance = place.get(&places).clone();
                    if Geometry::from_instances(board, all.iter().chain([&instance]).cloned()).is_err() {
                        continue;
                    }
                    all.push(instance.clone());
                    if is_pinned {
                        pinned.push(Held::whole(instance, true));
                    } else {
                        demand.add(instance.profile, 1);
                    }
                }
                states.push(gpu(format!("gpu-{at}"), pinned));
            }
            (Fleet::new(states).unwrap(), demand)
        })
    }

    fn unserved(fleet: &Fleet, demand: &Demand) -> u32 {
        let table = Table::new(fleet, demand).unwrap();
        let wanted: Vec<u32> = demand.iter().map(|(_, n)| n).collect();
        let choice = fill(&table, fleet, &table.largest_first(), &wanted);
        let stage = Stage {
            goal: Goal::Unserved(vec![1; wanted.len()]),
            limits: Vec::new(),
        };
        let model = Model {
            pool: table.pool.clone(),
            groups: table.groups.clone(),
            wanted,
        };
        model.goal(&stage, &choice)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn all_that_can_be_served_is((fleet, demand) in feasible()) {
            prop_assert_eq!(unserved(&fleet, &demand), 0);
        }
    }

    #[test]
    fn compute_instances_share_as_few_gpu_instances_as_they_need() {
        let fleet = Fleet::new([gpu("gpu-0".into(), Vec::new())]).unwrap();
        let demand: Demand = [("1c.3g.40gb", 4), ("2c.3g.40gb", 1), ("1g.10gb", 1)]
            .map(|(profile, n)| (profile.parse().unwrap(), n))
            .into_iter()
            .collect();
        let table = Table::new(&fleet, &demand).unwrap();
        let wanted: Vec<u32> = demand.iter().map(|(_, n)| n).collect();
        let row = |name: &str| {
            let row = table.profiles.iter().position(|profile| profile.as_str() == name);
            u16::try_from(row.unwrap()).unwrap()
        };
        let of = |name: &str| units(&table, &name.parse().unwrap(), &wanted).collect::<Vec<_>>();
        let (small, double) = (row("1c.3g.40gb"), row("2c.3g.40gb"));
        let mut halves = of("3g.40gb");
        for unit in &mut halves {
            unit.sort_unstable();
        }
        halves.sort();
        let mut mixed = vec![(small, 1), (double, 1)];
        mixed.sort_unstable();
        let mut expected = vec![mixed, vec![(small, 3)]];
        expected.sort();
        assert_eq!(halves, expected);
        assert_eq!(of("1g.10gb"), [[(row("1g.10gb"), 1)]]);
        assert_eq!(of("7g.80gb"), Vec::<Unit>::new());
        assert_eq!(unserved(&fleet, &demand), 1); // two halves leave no room for the slice
    }

    #[test]
    fn what_costs_least_of_those_that_serve_enough_is_taken() {
        let small: Profile = "1g.10gb".parse().unwrap();
        let placement = Placement { start: 0, size: 1 };
        let idle = Held::whole(
            Instance {
                placement,
                profile: small.clone(),
            },
            false,
        );
        let fleet = Fleet::new([gpu("gpu-0".into(), Vec::new()), gpu("gpu-1".into(), vec![idle])]).unwrap();
        let demand: Demand = [(small, 1)].into_iter().collect();
        let table = Table::new(&fleet, &demand).unwrap();
        let choice = fill(&table, &fleet, &[0], &[1]);
        let cost: Vec<_> = choice
            .iter()
            .map(|&option| table.pool.cost(option)[..3].to_vec())
            .collect();
        // The first GPU, as no GPU is better for a slice; nothing is done on the other.
        assert_eq!(cost, [vec![0, 1, 0], vec![0, 0, 0]]);
    }
}
