//! A first choice for a fleet: the largest profiles first, each where it takes least from those that are still to come.
//!
//! On boards whose placements nest, and where no profile is offered by two boards, this serves all GPU instances that can be
//! served. It looks at pinned instances only; the passes after it find out which idle ones can stay.

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
