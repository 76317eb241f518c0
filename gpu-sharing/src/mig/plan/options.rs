//! What can become of one GPU: each amount of demand that it can serve, at the least cost.

use std::collections::HashMap;

use super::{
    Change, ComputeChange,
    divided::{self, Cut},
};
use crate::mig::{Board, GpuState, Held, Mode, Placement, geometry::Load, loss::Losses};

/// Instances destroyed, GPUs touched, mode changes, loss left: compared in this order.
pub(super) type Costs = [u32; 4];

/// The rows that each profile of a board can serve: the size of the compute instance that is wanted, and its row.
pub(super) type Offers = Vec<Vec<(u32, u16)>>;

/// Options of all GPUs in one pool; GPUs in the same state share theirs.
#[derive(Debug, Clone, Default)]
pub(super) struct Pool {
    supply: Vec<(u16, u8)>,
    range: Vec<(u32, u32)>,
    cost: Vec<Costs>,
}

impl Pool {
    /// How many instances of each wanted profile (by row) an option serves; rows it does not serve are left out.
    pub(super) fn supply(&self, option: u32) -> &[(u16, u8)] {
        let (start, end) = self.range[option as usize];
        &self.supply[start as usize..end as usize]
    }

    pub(super) fn cost(&self, option: u32) -> &Costs {
        &self.cost[option as usize]
    }

    pub(super) fn push(&mut self, supply: impl Iterator<Item = (u16, u8)>, cost: Costs) -> u32 {
        let start = to_u32(self.supply.len());
        self.supply.extend(supply.filter(|&(_, n)| n > 0));
        self.range.push((start, to_u32(self.supply.len())));
        self.cost.push(cost);
        to_u32(self.cost.len() - 1)
    }
}

/// One way to change a GPU: which idle instances stay, and what is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) kept: Vec<(usize, Placement)>,
    pub(super) created: Vec<(usize, Placement)>,
    /// What becomes of the instances that can serve demand, where any is divided or is to be.
    pub(super) cuts: Vec<Cut>,
    pub(super) cost: Costs,
}

impl Way {
    /// What it changes, with what becomes of compute instances.
    pub(super) fn change(&self, gpu: &GpuState, mut compute: Vec<ComputeChange>) -> Change {
        compute.sort_by(|a, b| a.instance.cmp(&b.instance));
        let idle = gpu.placed(false).into_iter();
        Change {
            gpu: gpu.name.clone(),
            board: gpu.board.to_string(),
            mode: (gpu.mode == Mode::Disabled).then_some(true),
            destroyed: idle
                .filter(|at| !self.kept.contains(at))
                .map(|at| gpu.board.instance(at))
                .collect(),
            created: self.created.iter().map(|&at| gpu.board.instance(at)).collect(),
            compute,
        }
    }

    /// What there is afterwards.
    pub(super) fn after(&self, gpu: &GpuState) -> Vec<(usize, Placement)> {
        [gpu.placed(true), self.kept.clone(), self.created.clone()].concat()
    }
}

/// How often each profile of the board, eight bits each; a board has at most 32 profiles and 16 slots.
type Counts = [u64; 4];

fn bump(counts: &mut Counts, index: usize, up: bool) {
    let one = 1 << (index % 8 * 8);
    let word = &mut counts[index / 8];
    *word = if up {
        word.wrapping_add(one)
    } else {
        word.wrapping_sub(one)
    };
}

/// Calls `visit` with every way to change a GPU.
///
/// `wanted` says of each profile of the board whether it may be made and counts as supply. Nothing is destroyed only to be
/// made again, so some sets of instances come up once, not once for each way to reach them.
pub(super) fn each_way(
    gpu: &GpuState,
    wanted: &[bool],
    losses: &mut Losses,
    visit: &mut impl FnMut(&Counts, &[(usize, Placement)], &[(usize, Placement)], Costs),
) {
    if gpu.mode == Mode::Unavailable {
        return visit(&[0; 4], &[], &[], [0; 4]);
    }
    let board = &*gpu.board;
    let (pinned, idle) = (gpu.placed(true), gpu.placed(false));
    let weights: Vec<_> = idle.iter().map(|&at| gpu.held(at).map_or(0, Held::weight)).collect();
    let mut candidates: Vec<_> = (0..board.rules().len())
        .filter(|&index| wanted[index])
        .flat_map(|index| {
            board.rules()[index]
                .placements
                .iter()
                .map(move |&(placement, mask)| (placement, mask, index))
        })
        .collect();
    candidates.sort_unstable();
    for keep in (0..1_u32 << idle.len().min(16)).rev() {
        let is_kept = |at: usize| keep & (1 << at) != 0;
        let gone = weights.iter().enumerate().filter(|&(at, _)| !is_kept(at));
        let mut walk = Walk {
            board,
            losses,
            load: Load::new(board),
            occupied: 0,
            counts: [0; 4],
            destroyed: gone.map(|(_, weight)| weight).sum(),
            disabled: gpu.mode == Mode::Disabled,
            kept: Vec::new(),
            created: Vec::new(),
            visit,
        };
        for &(index, placement) in &pinned {
            walk.load.add(index);
            walk.occupied |= placement.mask();
        }
        for (_, &(index, placement)) in idle.iter().enumerate().filter(|&(at, _)| is_kept(at)) {
            walk.load.add(index);
            walk.occupied |= placement.mask();
            walk.kept.push((index, placement));
            if wanted[index] {
                bump(&mut walk.counts, index, true);
            }
        }
        let again = |&(placement, _, index): &(Placement, u32, usize)| {
            idle.iter()
                .enumerate()
                .any(|(at, &instance)| !is_kept(at) && instance == (index, placement))
        };
        let free: Vec<_> = candidates
            .iter()
            .filter(|c| c.1 & walk.occupied == 0 && !again(c))
            .copied()
            .collect();
        walk.from(&free);
    }
}

struct Walk<'a, F> {
    board: &'a Board,
    losses: &'a mut Losses,
    load: Load,
    occupied: u32,
    counts: Counts,
    destroyed: u32,
    disabled: bool,
    kept: Vec<(usize, Placement)>,
    created: Vec<(usize, Placement)>,
    visit: &'a mut F,
}

impl<F: FnMut(&Counts, &[(usize, Placement)], &[(usize, Placement)], Costs)> Walk<'_, F> {
    fn from(&mut self, mut candidates: &[(Placement, u32, usize)]) {
        let touched = self.destroyed > 0 || !self.created.is_empty();
        let loss = self.losses.of(self.occupied);
        let cost = [self.destroyed, touched.into(), (touched && self.disabled).into(), loss];
        (self.visit)(&self.counts, &self.kept, &self.created, cost);
        while let Some((&(placement, mask, index), rest)) = candidates.split_first() {
            candidates = rest;
            if self.occupied & mask != 0 || !self.load.admits(self.board, index) {
                continue;
            }
            self.occupied |= mask;
            self.load.add(index);
            self.created.push((index, placement));
            bump(&mut self.counts, index, true);
            self.from(rest);
            bump(&mut self.counts, index, false);
            self.created.pop();
            self.load.remove(index);
            self.occupied &= !mask;
        }
    }
}

/// The options of one GPU into the pool: for each supply the cheapest, less those that another serves more for no more.
pub(super) fn options(gpu: &GpuState, offers: &Offers, losses: &mut Losses, pool: &mut Pool) -> Vec<u32> {
    if divided::is_divided(gpu, offers) {
        let all = divided::cheapest(gpu, offers, losses);
        let kept = undominated(all, |more, less| more.iter().zip(less).all(|(more, less)| more >= less));
        let options = kept.into_iter().map(|(supply, cost)| {
            let rows = offers.iter().flatten().map(|&(_, row)| row);
            pool.push(rows.zip(supply), cost)
        });
        return options.collect();
    }
    let wanted: Vec<_> = offers.iter().map(|sizes| !sizes.is_empty()).collect();
    let mut cheapest: HashMap<Counts, Costs> = HashMap::new();
    each_way(gpu, &wanted, losses, &mut |counts, _, _, cost| {
        cheapest
            .entry(*counts)
            .and_modify(|known| *known = cost.min(*known))
            .or_insert(cost);
    });
    let options = undominated(cheapest, at_least).into_iter().map(|(counts, cost)| {
        let served = offers
            .iter()
            .enumerate()
            .flat_map(|(index, sizes)| sizes.iter().map(move |&(_, row)| (row, count(&counts, index))));
        pool.push(served, cost)
    });
    options.collect()
}

/// In order of their cost, without those that an earlier one is at least as much as.
fn undominated<T: Ord>(all: HashMap<T, Costs>, at_least: impl Fn(&T, &T) -> bool) -> Vec<(T, Costs)> {
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_unstable_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
    let mut kept: Vec<(T, Costs)> = Vec::new();
    for (supply, cost) in all {
        if !kept.iter().any(|(more, _)| at_least(more, &supply)) {
            kept.push((supply, cost));
        }
    }
    kept
}

/// A way to carry out an option, the first in order of the starts.
pub(super) fn way(
    gpu: &GpuState,
    offers: &Offers,
    losses: &mut Losses,
    supply: &[(u16, u8)],
    cost: Costs,
) -> Option<Way> {
    if divided::is_divided(gpu, offers) {
        return divided::way(gpu, offers, losses, supply, cost);
    }
    let wanted: Vec<_> = offers.iter().map(|sizes| !sizes.is_empty()).collect();
    let mut target = [0; 4];
    for (index, sizes) in offers.iter().enumerate() {
        let served = |row: u16| supply.iter().find(|(r, _)| *r == row).map_or(0, |&(_, n)| n);
        for &(_, row) in sizes {
            (0..served(row)).for_each(|_| bump(&mut target, index, true));
        }
    }
    let mut found = None;
    each_way(gpu, &wanted, losses, &mut |counts, kept, created, at| {
        if found.is_none() && *counts == target && at == cost {
            found = Some(Way {
                kept: kept.to_vec(),
                created: created.to_vec(),
                cuts: Vec::new(),
                cost,
            });
        }
    });
    found
}

fn count(counts: &Counts, index: usize) -> u8 {
    u8::try_from(counts[index / 8] >> (index % 8 * 8) & 0xFF).unwrap_or(u8::MAX)
}

fn at_least(more: &Counts, less: &Counts) -> bool {
    (0..32).all(|index| count(more, index) >= count(less, index))
}

fn to_u32(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::mig::{Catalogue, Geometry};

    /// Serving nothing costs no less than serving with what is there.
    #[test]
    fn an_option_that_another_beats_is_left_out() {
        #[track_caller]
        fn check(size: u32, expected: &[u8]) {
            let board = Arc::clone(Catalogue::builtin().board("A30-24GB").unwrap());
            let profile = "2g.12gb".parse().unwrap();
            let there = Geometry::new(&board, [(profile, 0)]).unwrap();
            let mut offers = vec![Vec::new(); board.rules().len()];
            offers[board.index(&"2g.12gb".parse().unwrap()).unwrap()].push((size, 7));
            let gpu = GpuState {
                name: "gpu-0".to_owned(),
                board,
                mode: Mode::Enabled,
                instances: vec![Held::whole(there.instances()[0].clone(), false)],
            };
            let mut pool = Pool::default();
            let found = options(&gpu, &offers, &mut Losses::new(&gpu.board), &mut pool);
            let supplies: Vec<_> = found.iter().map(|&option| pool.supply(option).to_vec()).collect();
            let expected: Vec<_> = expected.iter().map(|&n| vec![(7, n)]).collect();
            assert_eq!(supplies, expected);
        }
        check(2, &[1, 2]);
    }

    #[test]
    fn rows_that_an_option_does_not_serve_are_left_out() {
        let mut pool = Pool::default();
        let option = pool.push([(0, 0), (1, 2), (2, 0)].into_iter(), [0; 4]);
        assert_eq!(pool.supply(option), [(1, 2)]);
    }

    #[test]
    fn nothing_is_destroyed_only_to_be_made_again_and_every_change_touches_the_gpu() {
        let board = Arc::clone(Catalogue::builtin().board("A30-24GB").unwrap());
        let there = Geometry::new(&board, [1, 3].map(|start| ("1g.6gb".parse().unwrap(), start))).unwrap();
        let held = |instance: &crate::mig::Instance| Held::whole(instance.clone(), false);
        let gpu = GpuState {
            name: "gpu-0".to_owned(),
            mode: Mode::Enabled,
            instances: there.instances().iter().map(held).collect(),
            board,
        };
        let (idle, mut seen) = (gpu.placed(false), Vec::new());
        let wanted = vec![true; gpu.board.rules().len()];
        each_way(
            &gpu,
            &wanted,
            &mut Losses::new(&gpu.board),
            &mut |_, kept, created, cost| {
                assert!(!created.iter().any(|at| idle.contains(at)));
                assert_eq!(cost[0] as usize, idle.len() - kept.len());
                let is_nothing = kept == idle && created.is_empty();
                assert_eq!(cost[1], u32::from(!is_nothing), "destroying alone touches the GPU too");
                seen.push((kept.to_vec(), created.to_vec()));
            },
        );
        let ways = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), ways, "each way comes up once");
    }
}
