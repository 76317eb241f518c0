//! The least cost of serving a demand, by trying everything.
//!
//! Knows nothing of the crate but the two words below: the tables are written down again, legality is "no shared slot and
//! not too many", the loss is counted by trying all sets of runs, and the fleet is searched GPU by GPU with every reachable
//! remainder of the demand.

use std::collections::{BTreeMap, HashMap};

use gpu_sharing::mig::{Placement, Profile};

/// Profile, first slots, slots, most instances on a GPU.
pub(crate) type Table = Vec<(Profile, Vec<u8>, u8, usize)>;

/// Destroyed, touched, mode changes, loss.
pub(crate) type Cost = [u32; 4];

pub(crate) struct Gpu {
    pub(crate) table: Table,
    pub(crate) enabled: bool,
    /// Profile, place, pinned.
    pub(crate) instances: Vec<(Profile, Placement, bool)>,
}

pub(crate) fn table(rows: &[(&str, &[u8], u8, usize)]) -> Table {
    let row = |&(name, starts, slots, most): &(&str, &[u8], u8, usize)| {
        (name.parse().expect("a profile"), starts.to_vec(), slots, most)
    };
    rows.iter().map(row).collect()
}

/// The least cost, or `None` if the demand cannot be served.
pub(crate) fn least(gpus: &[Gpu], demand: &BTreeMap<Profile, u32>) -> Option<Cost> {
    let names: Vec<&Profile> = demand.keys().collect();
    let mut open: HashMap<Vec<u32>, Cost> = HashMap::from([(demand.values().copied().collect(), [0; 4])]);
    let mut ends: HashMap<String, HashMap<Vec<u32>, Cost>> = HashMap::new();
    for gpu in gpus {
        let key = format!("{:?}{}{:?}", gpu.table, gpu.enabled, gpu.instances);
        let ends = ends.entry(key).or_insert_with(|| ends_of(gpu, &names));
        let mut next: HashMap<Vec<u32>, Cost> = HashMap::new();
        for (left, cost) in &open {
            for (serves, more) in &*ends {
                let left: Vec<u32> = left
                    .iter()
                    .zip(serves)
                    .map(|(left, n)| left.saturating_sub(*n))
                    .collect();
                let cost = [0, 1, 2, 3].map(|level| cost[level] + more[level]);
                next.entry(left)
                    .and_modify(|known| *known = cost.min(*known))
                    .or_insert(cost);
            }
        }
        open = next;
    }
    open.get(&vec![0; names.len()]).copied()
}

/// The most instances of one profile that fit beside all of the others asked for.
pub(crate) fn most_beside(gpus: &[Gpu], demand: &BTreeMap<Profile, u32>, profile: &Profile) -> Option<u32> {
    let fits = |n: &u32| {
        let mut demand = demand.clone();
        demand.insert(profile.clone(), *n);
        least(gpus, &demand).is_some()
    };
    (0..=demand[profile]).rev().find(fits)
}

/// Every way a GPU can end: what it serves then, and the least cost of that.
fn ends_of(gpu: &Gpu, names: &[&Profile]) -> HashMap<Vec<u32>, Cost> {
    let places: Vec<(&Profile, Placement, usize)> = gpu
        .table
        .iter()
        .flat_map(|(profile, starts, size, most)| {
            starts
                .iter()
                .map(move |&start| (profile, Placement { start, size: *size }, *most))
        })
        .collect();
    let mut found = HashMap::new();
    let mut losses = HashMap::new();
    pick(&places, &mut Vec::new(), &mut |chosen| {
        finish(gpu, names, chosen, &mut losses, &mut found);
    });
    found
}

fn pick<'a>(
    rest: &[(&'a Profile, Placement, usize)],
    chosen: &mut Vec<(&'a Profile, Placement)>,
    finish: &mut impl FnMut(&[(&Profile, Placement)]),
) {
    let Some((&(profile, placement, most), rest)) = rest.split_first() else {
        return finish(chosen);
    };
    pick(rest, chosen, finish);
    let shares = |other: &Placement| {
        placement.start < other.start + other.size && other.start < placement.start + placement.size
    };
    let same = chosen.iter().filter(|(other, _)| *other == profile).count();
    if same < most && !chosen.iter().any(|(_, other)| shares(other)) {
        chosen.push((profile, placement));
        pick(rest, chosen, finish);
        chosen.pop();
    }
}

fn finish(
    gpu: &Gpu,
    names: &[&Profile],
    chosen: &[(&Profile, Placement)],
    losses: &mut HashMap<u32, u32>,
    found: &mut HashMap<Vec<u32>, Cost>,
) {
    let stays = |(profile, placement, _): &(Profile, Placement, bool)| chosen.contains(&(profile, *placement));
    if !gpu.instances.iter().filter(|held| held.2).all(stays) {
        return;
    }
    let destroyed = gpu.instances.iter().filter(|held| !stays(held)).count();
    let created = chosen.len() + destroyed - gpu.instances.len();
    let touched = u32::from(destroyed + created > 0);
    let serves = names.iter().map(|name| {
        let pinned = |at: &Placement| gpu.instances.iter().any(|held| held.2 && held.1 == *at);
        u32::try_from(
            chosen
                .iter()
                .filter(|(profile, at)| profile == name && !pinned(at))
                .count(),
        )
        .expect("few")
    });
    let slots: u32 = chosen
        .iter()
        .flat_map(|(_, at)| at.start..at.start + at.size)
        .fold(0, |mask, slot| mask | 1 << slot);
    let mode = if gpu.enabled { 0 } else { touched };
    let cost = [
        u32::try_from(destroyed).expect("few"),
        touched,
        mode,
        *losses.entry(slots).or_insert_with(|| lost(&gpu.table, slots)),
    ];
    found
        .entry(serves.collect())
        .and_modify(|known| *known = cost.min(*known))
        .or_insert(cost);
}

/// For each set of places, the slots that no longer fit into it, summed.
fn lost(table: &Table, occupied: u32) -> u32 {
    let mut shapes: Vec<(&Vec<u8>, u8)> = table.iter().map(|(_, starts, size, _)| (starts, *size)).collect();
    shapes.sort();
    shapes.dedup();
    let most = |starts: &[u8], size: u8, occupied: u32| {
        (0_u32..1 << starts.len())
            .filter(|set| {
                let runs: Vec<u32> = (0..starts.len())
                    .filter(|at| set & (1 << at) != 0)
                    .map(|at| ((1 << size) - 1) << starts[at])
                    .collect();
                let together = runs.iter().fold(occupied, |all, run| all | run);
                together.count_ones() == occupied.count_ones() + runs.iter().map(|run| run.count_ones()).sum::<u32>()
            })
            .map(u32::count_ones)
            .max()
            .unwrap_or(0)
    };
    shapes
        .iter()
        .map(|(starts, size)| u32::from(*size) * (most(starts, *size, 0) - most(starts, *size, occupied)))
        .sum()
}
