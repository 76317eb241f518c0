//! How long plans for large fleets take, and how far from the proven least they are.
//!
//! `cargo run --release -p gpu-sharing --example offline`
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "prints measurements")]

use std::{sync::Arc, time::Instant};

use gpu_sharing::mig::{Catalogue, Demand, Fleet, Geometry, GpuState, Held, Instance, Mode, PlanError, plan};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for gpus in [8, 30, 100, 1000] {
        for seed in 1..=3 {
            let (fleet, demand, wanted) = fleet(gpus, seed)?;
            let start = Instant::now();
            let made = plan(&fleet, &demand);
            let took = start.elapsed();
            match made {
                Ok(plan) => println!(
                    "{gpus} GPUs, {wanted} requests: {took:?} {:?} at least {:?}",
                    plan.cost, plan.at_least
                ),
                Err(PlanError::Short(short)) => println!("{gpus} GPUs, {wanted} requests: {took:?} {short}"),
                Err(error) => println!("{gpus} GPUs, {wanted} requests: {took:?} {error}"),
            }
        }
    }
    Ok(())
}

/// A fleet of three boards with 30 % of the slots pinned and 30 % idle, and the demand of a hidden filling of 95 % of the
/// slots that are not pinned.
fn fleet(gpus: usize, seed: u64) -> Result<(Fleet, Demand, u32), Box<dyn std::error::Error>> {
    let mut random = Random(seed);
    let boards = ["H100-80GB", "A30-24GB", "RTX-PRO-6000-Blackwell-96GB"];
    let mut states = Vec::new();
    let mut demand = Demand::default();
    let mut wanted = 0;
    for at in 0..gpus {
        let board = Arc::clone(Catalogue::builtin().board(boards[at % 3]).ok_or("built in")?);
        let profiles = board.base_profiles();
        let mut instances: Vec<Held> = Vec::new();
        let fill = |random: &mut Random, instances: &[Held]| {
            let profile = &profiles[random.below(profiles.len())];
            let spec = board.spec(profile)?;
            let placement = spec.placements[random.below(spec.placements.len())];
            let more = Instance {
                placement,
                profile: profile.clone(),
            };
            let all = instances.iter().map(|held| held.instance.clone()).chain([more.clone()]);
            Geometry::from_instances(&board, all).is_ok().then_some(more)
        };
        let share = |instances: &[Held], pinned| {
            let slots = instances
                .iter()
                .filter(|held| held.pinned == pinned)
                .map(|held| usize::from(held.instance.placement.size));
            10 * slots.sum::<usize>() >= 3 * usize::from(board.memory_slots())
        };
        for pinned in [true, false] {
            for _ in 0..20 {
                // Whole GPUs are not pinned: nothing could be planned on them.
                let whole = |more: &Instance| more.placement.size == board.memory_slots();
                if !share(&instances, pinned)
                    && let Some(instance) = fill(&mut random, &instances).filter(|more| !whole(more))
                {
                    instances.push(Held::whole(instance, pinned));
                }
            }
        }
        let mut hidden: Vec<Held> = instances.iter().filter(|held| held.pinned).cloned().collect();
        for _ in 0..60 {
            if let Some(instance) = fill(&mut random, &hidden) {
                hidden.push(Held::whole(instance.clone(), false));
                if random.below(100) < 95 {
                    demand.add(instance.profile, 1);
                    wanted += 1;
                }
            }
        }
        states.push(GpuState {
            name: format!("gpu-{at}"),
            board,
            mode: Mode::Enabled,
            instances,
        });
    }
    Ok((Fleet::new(states)?, demand, wanted))
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        usize::try_from(z % n as u64).unwrap_or(0)
    }
}
