use std::collections::BTreeSet;

use crate::mig::{Placement, States, loss::Losses};

/// Where one arriving request goes: a number for each GPU state and placement, computed once for a board.
///
/// Only placements that are possible are asked about. [`Online`](crate::mig::Online) takes the least score; a policy never
/// sees the fleet, which is why a decision need not scan it.
pub trait Policy {
    /// What putting a profile at a placement costs; less is better.
    fn score(&self, states: &States, candidate: Candidate) -> Score;
}

/// A placement that a policy has to judge; profile and placement are places in the [`States`]' lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// The state of the GPU now.
    pub before: u16,
    /// What is asked for.
    pub profile: usize,
    /// Where it would lie.
    pub placement: usize,
    /// The state of the GPU then.
    pub after: u16,
}

/// How good a placement is. Among GPUs with the same `gpu` the one that comes first is taken, and on it the least `place`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Score {
    /// Compared between GPUs.
    pub gpu: i64,
    /// Compared between placements on one GPU that have the same `gpu`.
    pub place: i64,
}

/// The first GPU with room, and on it the placement that the driver takes by itself: single slices and halves from the high
/// end, all else from the low one.
#[derive(Debug, Clone, Copy, Default)]
pub struct FirstFit;

/// The GPU with the fewest free slots; placed as [`FirstFit`] does.
#[derive(Debug, Clone, Copy, Default)]
pub struct BestFit;

/// Fragmentation gradient descent (Weng et al., USENIX ATC 2023) carried over to slots.
///
/// The fragmentation of a GPU is the free slots that a request, drawn from the given popularities, cannot use; the request
/// goes where it grows least. Needs to know the demand.
#[derive(Debug, Clone)]
pub struct Gradient {
    /// How often each profile is asked for, in the order of [`States::profiles`]; profiles beyond the end never are.
    pub popularity: Vec<f64>,
}

/// The smallest block that is free and has room, as a buddy allocator: of the blocks of the board that are wholly free and
/// contain the placement, the largest is to be as small as possible.
#[derive(Debug, Clone, Copy, Default)]
pub struct Buddy;

/// Keeps blocks that are free, and those that will soon be: the policy to use.
///
/// Each block of the board (the slots of any placement) has a worth, times 1 while it is free and a small share with each
/// instance in it, since instances end one by one. A request goes where the sum over all blocks falls least. So single
/// slices fill halves that are broken already, and of two such halves the one that more departures keep from being whole.
/// Nothing about the demand has to be known.
///
/// The default numbers were found by a random search over the workloads of `examples/online.rs`; the README has the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Prospect {
    /// What a whole GPU is worth.
    pub whole: f64,
    /// What half a GPU is worth that several profiles fit.
    pub half: f64,
    /// What half a GPU is worth that only one profile fits.
    pub poor_half: f64,
    /// What a quarter is worth.
    pub quarter: f64,
    /// What less than a quarter is worth.
    pub slot: f64,
    /// The share of its worth that a block keeps with one, two and three instances in it; none with more.
    pub shares: [f64; 3],
}

impl Default for Prospect {
    fn default() -> Self {
        Self {
            whole: 55.0,
            half: 1.9,
            poor_half: 1.7,
            quarter: 13.7,
            slot: 0.72,
            shares: [1e-3, 4.5e-6, 3e-7],
        }
    }
}

impl Prospect {
    fn worth(&self, states: &States, block: u32) -> f64 {
        let users = (0..states.profiles().len())
            .filter(|&p| states.runs(p).iter().any(|&(_, run)| run == block))
            .count();
        match 8 * block.count_ones() / u32::from(states.board().memory_slots()) {
            6.. => self.whole,
            3.. if users > 1 => self.half,
            3.. => self.poor_half,
            2 => self.quarter,
            _ => self.slot,
        }
    }
}

impl Policy for Prospect {
    fn score(&self, states: &States, candidate: Candidate) -> Score {
        let taken = states.runs(candidate.profile)[candidate.placement].1;
        let all = (0..states.profiles().len())
            .flat_map(|profile| states.runs(profile))
            .map(|&(_, run)| run);
        let blocks: BTreeSet<u32> = all.filter(|run| run & taken != 0).collect();
        let instances: Vec<_> = states
            .instances(candidate.before)
            .into_iter()
            .map(Placement::mask)
            .collect();
        let share = |n: usize| {
            if n == 0 {
                1.0
            } else {
                self.shares.get(n - 1).copied().unwrap_or(0.0)
            }
        };
        let lost = blocks.into_iter().map(|block| {
            let inside = instances.iter().filter(|run| *run & block != 0).count();
            self.worth(states, block) * (share(inside) - share(inside + 1))
        });
        Score {
            gpu: fixed(lost.sum::<f64>() * 1e3),
            place: 0,
        }
    }
}

impl Policy for FirstFit {
    fn score(&self, states: &States, candidate: Candidate) -> Score {
        Score {
            gpu: 0,
            place: driver_order(states, candidate),
        }
    }
}

impl Policy for BestFit {
    fn score(&self, states: &States, candidate: Candidate) -> Score {
        Score {
            gpu: states.free(candidate.before).into(),
            place: driver_order(states, candidate),
        }
    }
}

impl Policy for Gradient {
    fn score(&self, states: &States, candidate: Candidate) -> Score {
        let unusable = |state| -> f64 {
            let of = |(profile, popularity): (usize, &f64)| popularity * f64::from(unusable(states, state, profile));
            self.popularity
                .iter()
                .enumerate()
                .take(states.profiles().len())
                .map(of)
                .sum()
        };
        let growth = fixed(unusable(candidate.after) - unusable(candidate.before));
        Score {
            gpu: growth,
            place: driver_order(states, candidate),
        }
    }
}

impl Policy for Buddy {
    fn score(&self, states: &States, candidate: Candidate) -> Score {
        let occupied = states.occupied(candidate.before);
        let run = states.runs(candidate.profile)[candidate.placement].1;
        let blocks = (0..states.profiles().len()).flat_map(|profile| states.runs(profile));
        let free_around = blocks.filter(|(_, block)| block & run == run && block & occupied == 0);
        let largest = free_around.map(|(_, block)| block.count_ones()).max().unwrap_or(0);
        // Then the block that fewer profiles can use: the right half before the left one.
        let mut losses = Losses::new(states.board());
        let lost = losses
            .of(states.occupied(candidate.after))
            .saturating_sub(losses.of(occupied));
        let fuller = states.free(candidate.before);
        Score {
            gpu: (i64::from(largest) << 32) + (i64::from(lost) << 8) + i64::from(fuller),
            place: 0,
        }
    }
}

/// Free slots that instances of a profile cannot fill.
fn unusable(states: &States, state: u16, profile: usize) -> u32 {
    let mut taken = states.occupied(state);
    let mut filled = 0;
    for (_, run) in states.runs(profile) {
        if taken & run == 0 {
            taken |= run;
            filled += run.count_ones();
        }
    }
    states.free(state) - filled
}

/// As the driver chooses on an empty GPU (seen on an H100): starts 6 5 4 … for 1g, 4 before 0 for 3g, else low first.
fn driver_order(states: &States, candidate: Candidate) -> i64 {
    let (placement, _) = states.runs(candidate.profile)[candidate.placement];
    let start = i64::from(placement.start);
    let odd = states.profiles()[candidate.profile].slices() % 2 == 1;
    if odd { -start } else { start }
}

/// A score of a real number, in millionths.
fn fixed(value: f64) -> i64 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "scores are far below 2^63 millionths; others saturate"
    )]
    let fixed = (value * 1e6).round() as i64;
    fixed
}
