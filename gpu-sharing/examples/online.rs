//! Acceptance rates of the online policies on the same arrivals: `cargo run --release -p gpu-sharing --example online [seeds]`.
//!
//! 100 eight-slot GPUs, Poisson arrivals, exponential durations with mean 1, the load in slots offered over slots there are,
//! 40,000 arrivals of which the first 8,000 are not counted; a request that does not fit is lost, nothing is moved.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "prints measurements"
)]

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use gpu_sharing::mig::{
    BestFit, Board, Buddy, Candidate, Catalogue, FirstFit, Gradient, Instance, Online, Policy, Profile, Score, States,
};

const GPUS: usize = 100;
const ARRIVALS: usize = 40_000;
const WARM_UP: usize = 8_000;

/// Shares of 1g, 1g of double memory, 2g, 3g, 4g, 7g.
const MIXES: [(&str, [f64; 6]); 5] = [
    ("uniform", [1.0 / 6.0; 6]),
    ("small", [0.35, 0.2, 0.2, 0.12, 0.08, 0.05]),
    ("big", [0.05, 0.08, 0.12, 0.2, 0.2, 0.35]),
    ("bimodal", [0.35, 0.08, 0.07, 0.07, 0.08, 0.35]),
    ("no7g", [0.25, 0.15, 0.25, 0.2, 0.15, 0.0]),
];
const NAMES: [&str; 6] = ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"];
const SLOTS: [f64; 6] = [1.0, 2.0, 2.0, 4.0, 4.0, 8.0];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seeds: u64 = std::env::args().nth(1).map_or(Ok(10), |n| n.parse())?;
    let board = Arc::clone(Catalogue::builtin().board("H100-80GB").ok_or("built in")?);
    let profiles = NAMES
        .iter()
        .map(|name| name.parse())
        .collect::<Result<Vec<Profile>, _>>()?;
    println!("requests / slots accepted, {seeds} seeds; for each policy: mean");
    for rho in [0.85, 1.0, 1.2] {
        for (mix, shares) in MIXES {
            // In the board's order of profiles, which is not that of the names above.
            let states = States::new(&board, &profiles)?;
            let share = |p: &Profile| profiles.iter().position(|q| q == p).map_or(0.0, |at| shares[at]);
            let popularity: Vec<f64> = states.profiles().iter().map(share).collect();
            let runs: Vec<(&str, Vec<(f64, f64)>)> = vec![
                ("ff", run(&FirstFit, &board, &profiles, shares, rho, seeds)?),
                ("bf", run(&BestFit, &board, &profiles, shares, rho, seeds)?),
                (
                    "fgd",
                    run(
                        &Gradient {
                            popularity: popularity.clone(),
                        },
                        &board,
                        &profiles,
                        shares,
                        rho,
                        seeds,
                    )?,
                ),
                ("buddy", run(&Buddy, &board, &profiles, shares, rho, seeds)?),
                (
                    "loss",
                    run(&Weighted(vec![1.0; 6], 0.0), &board, &profiles, shares, rho, seeds)?,
                ),
                (
                    "wloss",
                    run(
                        &Weighted(popularity.clone(), 0.0),
                        &board,
                        &profiles,
                        shares,
                        rho,
                        seeds,
                    )?,
                ),
                (
                    "wloss+",
                    run(
                        &Weighted(popularity.iter().map(|p| p + 0.1).collect(), 0.0),
                        &board,
                        &profiles,
                        shares,
                        rho,
                        seeds,
                    )?,
                ),
            ];
            print!("{mix:8} {rho:.2}");
            for (name, results) in &runs {
                let mean = |f: fn(&(f64, f64)) -> f64| results.iter().map(f).sum::<f64>() / results.len() as f64;
                print!("  {name} {:.4}/{:.4}", mean(|r| r.0), mean(|r| r.1));
            }
            println!();
        }
    }
    Ok(())
}

struct Weighted(Vec<f64>, f64);
impl Policy for Weighted {
    fn score(&self, states: &States, c: Candidate) -> Score {
        let cap = |s: u16| -> f64 {
            (0..states.profiles().len())
                .map(|p| {
                    let mut taken = states.occupied(s);
                    let mut n = 0.0;
                    for at in states.placements(p) {
                        let run = ((1u32 << at.size) - 1) << at.start;
                        if taken & run == 0 {
                            taken |= run;
                            n += f64::from(at.size);
                        }
                    }
                    n * self.0[p]
                })
                .sum()
        };
        let d = cap(c.before) - cap(c.after);
        Score {
            gpu: (d * 1e6) as i64 * 16 + i64::from(states.free(c.before)),
            place: 0,
        }
    }
}

fn run(
    policy: &impl Policy,
    board: &Arc<Board>,
    profiles: &[Profile],
    shares: [f64; 6],
    rho: f64,
    seeds: u64,
) -> Result<Vec<(f64, f64)>, Box<dyn std::error::Error>> {
    let fleet = Online::new(policy, &vec![Arc::clone(board); GPUS], profiles)?;
    let mean: f64 = shares.iter().zip(SLOTS).map(|(p, s)| p * s).sum();
    let rate = rho * 8.0 * GPUS as f64 / mean;
    (1..=seeds)
        .map(|seed| simulate(fleet.clone(), profiles, shares, rate, seed))
        .collect()
}

fn simulate(
    mut fleet: Online,
    profiles: &[Profile],
    shares: [f64; 6],
    rate: f64,
    seed: u64,
) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let mut random = Random(seed);
    let mut ends: BinaryHeap<(Reverse<u64>, usize)> = BinaryHeap::new();
    let mut held: Vec<(usize, Instance)> = Vec::new();
    let mut now = 0.0;
    let (mut asked, mut taken) = ((0.0, 0.0), (0.0, 0.0));
    for arrival in 0..ARRIVALS {
        now -= random.unit().ln() / rate;
        let duration = -random.unit().ln();
        let mut left = random.unit();
        let kind = shares
            .iter()
            .position(|share| {
                left -= share;
                left <= 0.0
            })
            .unwrap_or(0);
        while let Some(&(Reverse(end), at)) = ends.peek()
            && f64::from_bits(end) <= now
        {
            ends.pop();
            fleet.release(held[at].0, &held[at].1)?;
        }
        let counts = arrival >= WARM_UP;
        if counts {
            asked = (asked.0 + 1.0, asked.1 + SLOTS[kind]);
        }
        if let Some(placed) = fleet.place(&profiles[kind]) {
            if counts {
                taken = (taken.0 + 1.0, taken.1 + SLOTS[kind]);
            }
            held.push(placed);
            ends.push((Reverse((now + duration).to_bits()), held.len() - 1));
        }
    }
    Ok((taken.0 / asked.0, taken.1 / asked.1))
}

struct Random(u64);
impl Random {
    /// In (0, 1], by SplitMix64.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        ((z >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    }
}
