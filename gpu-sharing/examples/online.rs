//! Acceptance rates of the online policies on the same arrivals, and the time of a decision.
//!
//! `cargo run --release -p gpu-sharing --example online [seeds [first]]`
//!
//! 100 eight-slot GPUs, Poisson arrivals, exponential durations with mean 1, the load in slots offered over slots there are,
//! 40,000 arrivals of which the first 8,000 are not counted. A request that does not fit is lost and nothing is moved; only
//! `repack` moves everything for free: it takes what any packing has room for, which no policy can.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "prints measurements"
)]

use std::{cmp::Reverse, collections::BinaryHeap, error::Error, hint::black_box, sync::Arc, time::Instant};

use gpu_sharing::mig::{
    BestFit, Board, Buddy, Catalogue, FirstFit, Gradient, Instance, Online, Profile, Prospect, States,
};

const GPUS: usize = 100;
const ARRIVALS: usize = 40_000;
const WARM_UP: usize = 8_000;

const NAMES: [&str; 6] = ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"];
const SLOTS: [f64; 6] = [1.0, 2.0, 2.0, 4.0, 4.0, 8.0];
/// Shares of the profiles above.
const MIXES: [(&str, [f64; 6]); 5] = [
    ("uniform", [1.0 / 6.0; 6]),
    ("small", [0.35, 0.2, 0.2, 0.12, 0.08, 0.05]),
    ("big", [0.05, 0.08, 0.12, 0.2, 0.2, 0.35]),
    ("bimodal", [0.35, 0.08, 0.07, 0.07, 0.08, 0.35]),
    ("no7g", [0.25, 0.15, 0.25, 0.2, 0.15, 0.0]),
];

/// Requests and slots accepted, of those asked for.
type Rates = (f64, f64);

fn main() -> Result<(), Box<dyn Error>> {
    let seeds: u64 = std::env::args().nth(1).map_or(Ok(10), |n| n.parse())?;
    let first: u64 = std::env::args().nth(2).map_or(Ok(1), |n| n.parse())?;
    let board = Arc::clone(Catalogue::builtin().board("H100-80GB").ok_or("not in the catalogue")?);
    let profiles = NAMES
        .iter()
        .map(|name| name.parse())
        .collect::<Result<Vec<Profile>, _>>()?;
    println!(
        "requests/slots accepted in %, mean of {seeds} seeds; then prospect less the best of the references in each, ± standard error"
    );
    println!("| mix | load | first-fit | best-fit | gradient | buddy | prospect | repack | requests | slots |");
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for load in [0.85, 1.0, 1.2] {
        for (name, shares) in MIXES {
            let run = |policy: &dyn Fn(u64) -> Result<Rates, Box<dyn Error>>| {
                (first..first + seeds).map(policy).collect::<Result<Vec<_>, _>>()
            };
            let workload = |seed| Workload::new(shares, load, seed);
            let on = |fleet: Online| run(&|seed| workload(seed).online(fleet.clone(), &profiles));
            let fleet = |gpus| vec![Arc::clone(&board); gpus];
            let known = popularity(&board, &profiles, shares)?;
            let results = [
                on(Online::new(&FirstFit, &fleet(GPUS), &profiles)?)?,
                on(Online::new(&BestFit, &fleet(GPUS), &profiles)?)?,
                on(Online::new(&Gradient { popularity: known }, &fleet(GPUS), &profiles)?)?,
                on(Online::new(&Buddy, &fleet(GPUS), &profiles)?)?,
                on(Online::new(&Prospect::default(), &fleet(GPUS), &profiles)?)?,
                run(&|seed| Ok(workload(seed).repacked()))?,
            ];
            print!("| {name} | {load:.2} |");
            for rates in &results {
                print!(
                    " {:.2}/{:.2} |",
                    100.0 * mean(rates, |r| r.0),
                    100.0 * mean(rates, |r| r.1)
                );
            }
            for part in [|r: &Rates| r.0, |r: &Rates| r.1] {
                let best = results[..4]
                    .iter()
                    .max_by(|a, b| mean(a, part).total_cmp(&mean(b, part)))
                    .ok_or("none")?;
                let gains: Vec<Rates> = results[4]
                    .iter()
                    .zip(best)
                    .map(|(a, b)| (part(a) - part(b), 0.0))
                    .collect();
                let gain = mean(&gains, |r| r.0);
                let variance = gains.iter().map(|r| (r.0 - gain).powi(2)).sum::<f64>() / (gains.len() as f64 - 1.0);
                print!(
                    " {:+.2} ± {:.2} |",
                    100.0 * gain,
                    100.0 * (variance / gains.len() as f64).sqrt()
                );
            }
            println!();
        }
    }
    for gpus in [100, 10_000] {
        time(&board, &profiles, gpus)?;
    }
    Ok(())
}

fn mean(rates: &[Rates], part: fn(&Rates) -> f64) -> f64 {
    rates.iter().map(part).sum::<f64>() / rates.len() as f64
}

/// The shares in the order in which a policy sees the profiles.
fn popularity(board: &Arc<Board>, profiles: &[Profile], shares: [f64; 6]) -> Result<Vec<f64>, Box<dyn Error>> {
    let share = |p: &Profile| profiles.iter().position(|q| q == p).map_or(0.0, |at| shares[at]);
    Ok(States::new(board, profiles)?.profiles().iter().map(share).collect())
}

/// The mean time to place a request and to release an instance, on a fleet that is nearly full.
fn time(board: &Arc<Board>, profiles: &[Profile], gpus: usize) -> Result<(), Box<dyn Error>> {
    let mut fleet = Online::new(&Prospect::default(), &vec![Arc::clone(board); gpus], profiles)?;
    let mut random = Random(1);
    let mut held = Vec::new();
    while let Some(placed) = fleet.place(&profiles[random.below(5)]) {
        held.push(placed);
    }
    let rounds = 1_000_000;
    let mut placed = 0;
    let start = Instant::now();
    for _ in 0..rounds {
        let (gpu, instance) = held.swap_remove(random.below(held.len()));
        fleet.release(gpu, &instance)?;
        while let Some(new) = black_box(fleet.place(&profiles[random.below(6)])) {
            held.push(new);
            placed += 1;
        }
    }
    let each = start.elapsed() / (2 * rounds + placed);
    println!("{gpus} GPUs: {each:?} for a decision or a release");
    Ok(())
}

/// Arrivals of one seed.
struct Workload {
    shares: [f64; 6],
    rate: f64,
    random: Random,
    now: f64,
    asked: Rates,
    taken: Rates,
}

impl Workload {
    fn new(shares: [f64; 6], load: f64, seed: u64) -> Self {
        let mean: f64 = shares.iter().zip(SLOTS).map(|(p, s)| p * s).sum();
        let rate = load * 8.0 * GPUS as f64 / mean;
        Self {
            shares,
            rate,
            random: Random(seed),
            now: 0.0,
            asked: (0.0, 0.0),
            taken: (0.0, 0.0),
        }
    }

    /// The next request and when it will end.
    fn next(&mut self, arrival: usize) -> (usize, u64) {
        self.now -= self.random.unit().ln() / self.rate;
        let end = self.now - self.random.unit().ln();
        let mut left = self.random.unit();
        let over = |share: &f64| {
            left -= share;
            left <= 0.0
        };
        let kind = self.shares.iter().position(over).unwrap_or(0);
        if arrival >= WARM_UP {
            self.asked = (self.asked.0 + 1.0, self.asked.1 + SLOTS[kind]);
        }
        // Positive numbers are in the order of their bits.
        (kind, end.to_bits())
    }

    fn take(&mut self, arrival: usize, kind: usize) {
        if arrival >= WARM_UP {
            self.taken = (self.taken.0 + 1.0, self.taken.1 + SLOTS[kind]);
        }
    }

    fn rates(&self) -> Rates {
        (self.taken.0 / self.asked.0, self.taken.1 / self.asked.1)
    }

    fn online(mut self, mut fleet: Online, profiles: &[Profile]) -> Result<Rates, Box<dyn Error>> {
        let mut ends: BinaryHeap<(Reverse<u64>, usize)> = BinaryHeap::new();
        let mut held: Vec<(usize, Instance)> = Vec::new();
        for arrival in 0..ARRIVALS {
            let (kind, end) = self.next(arrival);
            while let Some(&(Reverse(past), at)) = ends.peek()
                && f64::from_bits(past) <= self.now
            {
                ends.pop();
                fleet.release(held[at].0, &held[at].1)?;
            }
            if let Some(placed) = fleet.place(&profiles[kind]) {
                self.take(arrival, kind);
                held.push(placed);
                ends.push((Reverse(end), held.len() - 1));
            }
        }
        Ok(self.rates())
    }

    fn repacked(mut self) -> Rates {
        let mut ends: BinaryHeap<(Reverse<u64>, usize)> = BinaryHeap::new();
        let mut held = [0_i64; 6];
        for arrival in 0..ARRIVALS {
            let (kind, end) = self.next(arrival);
            while let Some(&(Reverse(past), kind)) = ends.peek()
                && f64::from_bits(past) <= self.now
            {
                ends.pop();
                held[kind] -= 1;
            }
            held[kind] += 1;
            if fits(held) {
                self.take(arrival, kind);
                ends.push((Reverse(end), kind));
            } else {
                held[kind] -= 1;
            }
        }
        self.rates()
    }
}

/// Whether all instances fit the empty fleet: halves, then pairs, then slices, each from the block that others need less.
fn fits([one, double, two, three, four, seven]: [i64; 6]) -> bool {
    let gpus = i64::try_from(GPUS).unwrap_or(0) - seven;
    let right = (gpus - three).max(0);
    let left = gpus - four - (three - gpus).max(0);
    let pairs = 2 * left + right - two;
    let poor = (right - double).max(0);
    let pairs = pairs - (double - right).max(0);
    gpus >= 0 && left >= 0 && pairs >= 0 && one <= 2 * pairs + poor
}

struct Random(u64);

impl Random {
    /// `SplitMix64`.
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// In (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.bits() % n as u64).unwrap_or(0)
    }
}
