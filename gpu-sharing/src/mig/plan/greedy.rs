//! A first choice for a fleet: the largest profiles first, each where it takes least from those that are still to come.
//!
//! On boards whose placements nest, and where no profile is offered by two boards, this serves all that can be served. It
//! looks at pinned instances only; the passes after it find out which idle ones can stay.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::Table;
use crate::mig::{Fleet, GpuState, Mode, geometry::Load, loss::Losses};

/// A GPU that is being filled.
struct Filling<'a> {
    gpu: &'a GpuState,
    board: usize,
    occupied: u32,
    load: Load,
    /// How many of each row were placed.
    served: Vec<(u16, u8)>,
}

/// An option for each GPU that serves at least what fell on it; `order` is the rows, largest profile first.
pub(super) fn fill(table: &Table, fleet: &Fleet, order: &[usize], wanted: &[u32]) -> Vec<u32> {
    let mut losses: Vec<_> = table.boards.iter().map(|(board, _)| Losses::new(board)).collect();
    let mut gpus: Vec<_> = fleet.gpus().iter().map(|gpu| Filling::new(table, gpu)).collect();
    for (at, &row) in order.iter().enumerate() {
        let to_come = |row: &Option<u16>| row.is_some_and(|row| order[at + 1..].contains(&row.into()));
        let mut rest: Vec<_> = table
            .boards
            .iter()
            .map(|(board, rows)| Losses::only(board, |index| to_come(&rows[index])))
            .collect();
        let row16 = u16::try_from(row).unwrap_or(u16::MAX);
        let index: Vec<_> = table
            .boards
            .iter()
            .map(|(_, rows)| rows.iter().position(|r| *r == Some(row16)))
            .collect();
        let mut queue = BinaryHeap::new();
        let mut offer = |gpus: &[Filling<'_>], at: usize| {
            let gpu = &gpus[at];
            let (delta, mask) = gpu.best(index[gpu.board]?, &mut rest[gpu.board], &mut losses[gpu.board])?;
            Some(Reverse((delta, at, mask)))
        };
        queue.extend((0..gpus.len()).filter_map(|at| offer(&gpus, at)));
        for _ in 0..wanted[row] {
            let Some(Reverse((_, at, mask))) = queue.pop() else {
                break;
            };
            let gpu = &mut gpus[at];
            gpu.occupied |= mask;
            index[gpu.board].into_iter().for_each(|index| gpu.load.add(index));
            match gpu.served.iter_mut().find(|(r, _)| *r == row16) {
                Some((_, n)) => *n += 1,
                None => gpu.served.push((row16, 1)),
            }
            queue.extend(offer(&gpus, at));
        }
    }
    gpus.iter()
        .zip(&table.groups)
        .map(|(gpu, options)| gpu.option(table, options))
        .collect()
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
