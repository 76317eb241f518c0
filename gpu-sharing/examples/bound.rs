//! How far the online policies are from the best there can be, on a fleet of two GPUs.
//!
//! `cargo run --release -p gpu-sharing --example bound`
//!
//! The fleet with Poisson arrivals and exponential durations is a Markov decision process with some 87,000 states. Value
//! iteration gives the slots accepted by the best policy that knows the demand, by the best that refuses nothing for which
//! there is room, and by each policy, all exact up to the last digit shown. A second table counts requests.
#![expect(clippy::print_stdout, clippy::cast_precision_loss, reason = "prints measurements")]

use std::{error::Error, sync::Arc};

use gpu_sharing::mig::{BestFit, Buddy, Candidate, Catalogue, FirstFit, Gradient, Policy, Profile, Prospect, States};

const NAMES: [&str; 6] = ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"];
const SLOTS: [f64; 6] = [1.0, 2.0, 2.0, 4.0, 4.0, 8.0];
const MIXES: [(&str, [f64; 6]); 5] = [
    ("uniform", [1.0 / 6.0; 6]),
    ("small", [0.35, 0.2, 0.2, 0.12, 0.08, 0.05]),
    ("big", [0.05, 0.08, 0.12, 0.2, 0.2, 0.35]),
    ("bimodal", [0.35, 0.08, 0.07, 0.07, 0.08, 0.35]),
    ("no7g", [0.25, 0.15, 0.25, 0.2, 0.15, 0.0]),
];

/// What happens to a request.
enum Rule<'a> {
    /// The best, refusing what is better refused.
    Best,
    /// The best, taking whatever there is room for.
    BestTaking,
    Policy(&'a dyn Policy),
}

fn main() -> Result<(), Box<dyn Error>> {
    let board = Arc::clone(Catalogue::builtin().board("H100-80GB").ok_or("not in the catalogue")?);
    let profiles = NAMES
        .iter()
        .map(|name| name.parse())
        .collect::<Result<Vec<Profile>, _>>()?;
    let states = States::new(&board, &profiles)?;
    println!("slots accepted in %, two GPUs, load 1.0");
    table(&states, &profiles, 1.0, SLOTS);
    println!("requests accepted in %, two GPUs, load 1.2");
    table(&states, &profiles, 1.2, [1.0; 6]);
    Ok(())
}

/// One line for each mix; a request of each profile is worth so much.
fn table(states: &States, profiles: &[Profile], load: f64, worth: [f64; 6]) {
    println!("| mix | first-fit | best-fit | gradient | buddy | prospect | best that takes what fits | best |");
    println!("|---|---|---|---|---|---|---|---|");
    for (name, shares) in MIXES {
        let share = |p: &Profile| profiles.iter().position(|q| q == p).map_or(0.0, |at| shares[at]);
        let gradient = Gradient {
            popularity: states.profiles().iter().map(share).collect(),
        };
        let prospect = Prospect::default();
        let rules = [
            Rule::Policy(&FirstFit),
            Rule::Policy(&BestFit),
            Rule::Policy(&gradient),
            Rule::Policy(&Buddy),
            Rule::Policy(&prospect),
            Rule::BestTaking,
            Rule::Best,
        ];
        print!("| {name} |");
        for rule in &rules {
            let offered = Offered { shares, load, worth };
            print!(" {:.2} |", 100.0 * accepted(states, profiles, &offered, rule));
        }
        println!();
    }
}

/// What is asked for.
struct Offered {
    shares: [f64; 6],
    /// Slots asked for over slots there are.
    load: f64,
    worth: [f64; 6],
}

/// The worth accepted in the long run, of what is offered.
fn accepted(states: &States, profiles: &[Profile], offered: &Offered, rule: &Rule<'_>) -> f64 {
    let Offered { shares, load, worth } = *offered;
    let n = states.len();
    let id = |s: usize| u16::try_from(s).unwrap_or(u16::MAX);
    let mean: f64 = shares.iter().zip(SLOTS).map(|(p, s)| p * s).sum();
    let rate = load * 16.0 / mean;
    let worth_of_all: f64 = rate * shares.iter().zip(worth).map(|(p, w)| p * w).sum::<f64>();
    let total = rate + 14.0; // at most seven instances on each GPU
    // Per state: what departures lead to, and per request the states that adding leads to with the policy's score.
    let leave: Vec<Vec<usize>> = (0..n)
        .map(|s| {
            let one = |at| {
                (0..states.profiles().len()).find_map(|p| {
                    let place = states.placements(p).position(|other| other == at)?;
                    states.remove(id(s), p, place).map(usize::from)
                })
            };
            states.instances(id(s)).into_iter().filter_map(one).collect()
        })
        .collect();
    let enter: Vec<Vec<Vec<(i64, i64, usize)>>> = (0..n)
        .map(|s| {
            let request = |name: &Profile| {
                let profile = states.profiles().iter().position(|p| p == name).unwrap_or(0);
                let add = |placement| {
                    let after = states.add(id(s), profile, placement)?;
                    let (gpu, place) = match rule {
                        Rule::Policy(policy) => {
                            let score = policy.score(
                                states,
                                Candidate {
                                    before: id(s),
                                    profile,
                                    placement,
                                    after,
                                },
                            );
                            (score.gpu, score.place)
                        }
                        Rule::Best | Rule::BestTaking => (0, 0),
                    };
                    Some((gpu, place, usize::from(after)))
                };
                (0..states.placements(profile).count()).filter_map(add).collect()
            };
            profiles.iter().map(request).collect()
        })
        .collect();
    let mut value: Vec<f64> = vec![0.0; n * n];
    for sweep in 0.. {
        let mut next = vec![0.0; n * n];
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for a in 0..n {
            for b in a..n {
                let at = |x: usize, y: usize| value[x.min(y) * n + x.max(y)];
                let now = at(a, b);
                let mut sum = 0.0;
                for kind in 0..6 {
                    let (left, right) = (&enter[a][kind], &enter[b][kind]);
                    let all = left.iter().map(|o| (o.0, 0, o.1, at(o.2, b)));
                    let all = all.chain(right.iter().map(|o| (o.0, 1, o.1, at(a, o.2))));
                    let chosen = match rule {
                        Rule::Policy(_) => all.min_by(|x, y| (x.0, x.1, x.2).cmp(&(y.0, y.1, y.2))),
                        Rule::Best | Rule::BestTaking => all.max_by(|x, y| x.3.total_cmp(&y.3)),
                    };
                    let taken = chosen.map(|(_, _, _, then)| worth[kind] + then);
                    sum += rate
                        * shares[kind]
                        * match rule {
                            Rule::Best => taken.map_or(now, |taken| taken.max(now)),
                            Rule::BestTaking | Rule::Policy(_) => taken.unwrap_or(now),
                        };
                }
                sum += leave[a]
                    .iter()
                    .map(|&x| at(x, b))
                    .chain(leave[b].iter().map(|&y| at(a, y)))
                    .sum::<f64>();
                sum += (14.0 - (leave[a].len() + leave[b].len()) as f64) * now;
                let new = sum / total;
                (low, high) = (low.min(new - now), high.max(new - now));
                next[a * n + b] = new;
            }
        }
        value = next;
        if high - low < 1e-5 || sweep > 3000 {
            return f64::midpoint(low, high) * total / worth_of_all;
        }
    }
    0.0
}
