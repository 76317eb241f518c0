//! The least cost of serving a demand, by trying everything.
//!
//! Knows nothing of the crate but the two words below: the tables are written down again, legality is "no shared slot and
//! not too many", the loss is counted by trying all sets of runs, GPU instances are divided in every way there is, and the
//! fleet is searched GPU by GPU with every reachable remainder of the demand.

use std::collections::{BTreeMap, HashMap, HashSet};

use gpu_sharing::mig::{Placement, Profile};

/// Profile, first slots, slots, most instances on a GPU.
pub(crate) type Table = Vec<(Profile, Vec<u8>, u8, usize)>;

/// Destroyed, touched, mode changes, loss.
pub(crate) type Cost = [u32; 4];

pub(crate) struct Gpu {
    pub(crate) table: Table,
    pub(crate) enabled: bool,
    pub(crate) instances: Vec<Held>,
}

/// A GPU instance that is there.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    pub(crate) profile: Profile,
    pub(crate) at: Placement,
    /// Its compute instances.
    pub(crate) parts: Vec<Part>,
}

/// First compute slice, slices, pinned.
pub(crate) type Part = (u32, u32, bool);

impl Held {
    pub(crate) fn is_pinned(&self) -> bool {
        self.parts.iter().any(|part| part.2)
    }

    fn is_whole(&self) -> bool {
        matches!(self.parts[..], [(0, slices, _)] if slices == self.profile.slices())
    }
}

/// Where compute instances can lie in a GPU instance: slices, and the first ones.
pub(crate) fn cuts(whole: u32) -> &'static [(u32, &'static [u32])] {
    match whole {
        1 => &[(1, &[0])],
        2 => &[(1, &[0, 1]), (2, &[0])],
        3 => &[(1, &[0, 1, 2]), (2, &[0]), (3, &[0])],
        4 => &[(1, &[0, 1, 2, 3]), (2, &[0, 2]), (4, &[0])],
        _ => &[
            (1, &[0, 1, 2, 3, 4, 5, 6]),
            (2, &[0, 2, 4]),
            (3, &[0, 4]),
            (4, &[0]),
            (7, &[0]),
        ],
    }
}

/// First compute slice and slices of each.
pub(crate) fn cut_places(whole: u32) -> Vec<(u32, u32)> {
    let places = cuts(whole).iter();
    places
        .flat_map(|(slices, starts)| starts.iter().map(move |start| (*start, *slices)))
        .collect()
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
    let mut known: HashMap<String, HashMap<Vec<u32>, Cost>> = HashMap::new();
    for gpu in gpus {
        let key = format!("{:?}{}{:?}", gpu.table, gpu.enabled, gpu.instances);
        let divisions = |profile: &Profile, held: Option<&Held>| divisions(profile, held, &names);
        let ends = known.entry(key).or_insert_with(|| ends(gpu, &divisions, names.len()));
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

/// The least cost of giving one GPU exactly these compute instances in GPU instances of their profiles, and nothing else;
/// `None` if that cannot be. Those that are pinned count and stay.
pub(crate) fn exactly(gpu: &Gpu, declared: &BTreeMap<Profile, u32>) -> Option<Cost> {
    let names: Vec<&Profile> = declared.keys().collect();
    let wanted: Vec<u32> = declared.values().copied().collect();
    let divisions = |profile: &Profile, held: Option<&Held>| full_divisions(profile, held, &names);
    let [destroyed, touched, mode_changes, loss] = *ends(gpu, &divisions, names.len()).get(&wanted)?;
    Some(if gpu.enabled {
        [destroyed, touched, mode_changes, loss]
    } else {
        [destroyed, 1, 1, loss] // also where nothing is declared
    })
}

/// What lies somewhere: a compute instance, or a GPU instance without any. Profile, place, place in it, pinned.
type Thing = (Profile, Placement, Option<(u32, u32)>, bool);

/// The least cost of making one GPU the same as another of its board, where nothing that is in use goes; `None` if it has to.
pub(crate) fn same(gpu: &Gpu, target: &[Held]) -> Option<Cost> {
    let things = |instances: &[Held]| -> Vec<Thing> {
        let of = |held: &Held| {
            let thing = |part: Option<&Part>| {
                let (place, pinned) = part.map_or((None, false), |part| (Some((part.0, part.1)), part.2));
                (held.profile.clone(), held.at, place, pinned)
            };
            let none = held.parts.is_empty().then(|| thing(None));
            none.into_iter()
                .chain(held.parts.iter().map(|part| thing(Some(part))))
                .collect::<Vec<_>>()
        };
        instances.iter().flat_map(of).collect()
    };
    let (before, after) = (things(&gpu.instances), things(target));
    let has = |all: &[Thing], one: &Thing| {
        all.iter()
            .any(|other| (&other.0, other.1, other.2) == (&one.0, one.1, one.2))
    };
    let gone: Vec<_> = before.iter().filter(|one| !has(&after, one)).collect();
    if gone.iter().any(|one| one.3) {
        return None;
    }
    // A GPU instance without compute instances that gets some stays.
    let filled = |one: &&&Thing| one.2.is_none() && target.iter().any(|held| held.profile == one.0 && held.at == one.1);
    let destroyed = gone.len() - gone.iter().filter(filled).count();
    let differs = !gone.is_empty() || after.iter().any(|one| !has(&before, one)) || !gpu.enabled;
    let slots = target
        .iter()
        .flat_map(|held| held.at.start..held.at.start + held.at.size);
    let slots = slots.fold(0, |mask, slot| mask | 1 << slot);
    let destroyed = u32::try_from(destroyed).expect("few");
    Some([
        destroyed,
        differs.into(),
        (!gpu.enabled).into(),
        lost(&gpu.table, slots),
    ])
}

/// How many instances of each profile an empty GPU can have at once, all ways there are.
pub(crate) fn counts(table: &Table) -> HashSet<Vec<i64>> {
    let gpu = Gpu {
        table: table.clone(),
        enabled: true,
        instances: Vec::new(),
    };
    let mut found = HashSet::new();
    pick(&places(&gpu), &mut Vec::new(), &mut |chosen| {
        let of = |profile: &Profile| chosen.iter().filter(|(other, _)| *other == profile).count();
        let counts = table.iter().map(|row| i64::try_from(of(&row.0)).expect("few"));
        found.insert(counts.collect());
    });
    found
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

/// Every way a GPU can end, its GPU instances divided so: what it has or serves then, and the least cost of that.
fn ends(gpu: &Gpu, divisions: &dyn Fn(&Profile, Option<&Held>) -> Divisions, names: usize) -> HashMap<Vec<u32>, Cost> {
    let mut found = HashMap::new();
    let mut losses = HashMap::new();
    pick(&places(gpu), &mut Vec::new(), &mut |chosen| {
        for (serves, cost) in reached(gpu, chosen, &mut losses, divisions, names) {
            found
                .entry(serves)
                .and_modify(|known: &mut Cost| *known = cost.min(*known))
                .or_insert(cost);
        }
    });
    found
}

fn places(gpu: &Gpu) -> Vec<(&Profile, Placement, usize)> {
    gpu.table
        .iter()
        .flat_map(|(profile, starts, size, most)| {
            starts
                .iter()
                .map(move |&start| (profile, Placement { start, size: *size }, *most))
        })
        .collect()
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

/// The ways to divide a GPU instance: how many of each name, how many compute instances go, whether it changes.
type Divisions = HashMap<Vec<u32>, (u32, bool)>;

/// What a GPU with these instances can have or serve, as they are divided, and the least cost of that; nothing if one in use is
/// not among them.
fn reached(
    gpu: &Gpu,
    chosen: &[(&Profile, Placement)],
    losses: &mut HashMap<u32, u32>,
    divisions: &dyn Fn(&Profile, Option<&Held>) -> Divisions,
    names: usize,
) -> HashMap<Vec<u32>, Cost> {
    let stays = |held: &Held| chosen.contains(&(&held.profile, held.at));
    if !gpu.instances.iter().filter(|held| held.is_pinned()).all(stays) {
        return HashMap::new();
    }
    let gone: Vec<_> = gpu.instances.iter().filter(|held| !stays(held)).collect();
    let kept = gpu.instances.len() - gone.len();
    let destroyed: usize = gone.iter().map(|held| held.parts.len().max(1)).sum();
    let moved = chosen.len() > kept || !gone.is_empty();
    let slots: u32 = chosen
        .iter()
        .flat_map(|(_, at)| at.start..at.start + at.size)
        .fold(0, |mask, slot| mask | 1 << slot);
    let loss = *losses.entry(slots).or_insert_with(|| lost(&gpu.table, slots));
    let mut open: Divisions = HashMap::from([(vec![0; names], (u32::try_from(destroyed).expect("few"), moved))]);
    for (profile, at) in chosen {
        let mut instances = gpu.instances.iter();
        let held = instances.find(|held| held.profile == **profile && held.at == *at);
        let mut next: Divisions = HashMap::new();
        for (before, (destroyed, changed)) in &open {
            for (more, (gone, differs)) in &divisions(profile, held) {
                let serves = before.iter().zip(more).map(|(a, b)| a + b).collect();
                let cost = (destroyed + gone, *changed || *differs);
                next.entry(serves)
                    .and_modify(|known| *known = cost.min(*known))
                    .or_insert(cost);
            }
        }
        open = next;
    }
    let cost = |(destroyed, changed): (u32, bool)| {
        let touched = u32::from(changed);
        [destroyed, touched, if gpu.enabled { 0 } else { touched }, loss]
    };
    open.into_iter().map(|(serves, end)| (serves, cost(end))).collect()
}

/// Every way to divide a GPU instance: what it serves then, how many compute instances go, and whether it changes.
fn divisions(profile: &Profile, held: Option<&Held>, names: &[&Profile]) -> Divisions {
    let whole = profile.slices();
    let wanted: Vec<_> = names.iter().filter(|name| name.gpu_instance() == *profile).collect();
    let parts = held.map(|held| held.parts.clone()).unwrap_or_default();
    let mut found = HashMap::new();
    let mut end = |chosen: &[(u32, u32)]| {
        if !parts
            .iter()
            .filter(|part| part.2)
            .all(|part| chosen.contains(&(part.0, part.1)))
        {
            return;
        }
        let gone = parts.iter().filter(|part| !chosen.contains(&(part.0, part.1))).count();
        let differs = held.is_some() && (gone > 0 || chosen.len() > parts.len());
        let pinned = |at: &(u32, u32)| parts.contains(&(at.0, at.1, true));
        let serves = |name: &&Profile| {
            let of_name = |at: &&(u32, u32)| name.gpu_instance() == *profile && at.1 == name.compute_slices();
            u32::try_from(chosen.iter().filter(of_name).filter(|at| !pinned(at)).count()).expect("few")
        };
        let cost = (u32::try_from(gone).expect("few"), differs);
        found
            .entry(names.iter().map(serves).collect())
            .and_modify(|known: &mut (u32, bool)| *known = cost.min(*known))
            .or_insert(cost);
    };
    // One that nobody wants to be divided stays as it is, or is made whole.
    let asked = wanted.iter().any(|name| name.compute_slices() != whole);
    if wanted.is_empty() && held.is_some() {
        end(&parts.iter().map(|part| (part.0, part.1)).collect::<Vec<_>>());
    } else if !asked && held.is_none_or(Held::is_whole) {
        end(&[(0, whole)]);
    } else {
        let places = cut_places(whole);
        apart(&places, &mut Vec::new(), &mut end);
    }
    found
}

/// Every way to divide a GPU instance into sizes that are declared of it, at least one: how many of each name it has then, how
/// many compute instances go, and whether it changes.
fn full_divisions(profile: &Profile, held: Option<&Held>, names: &[&Profile]) -> Divisions {
    let parts = held.map(|held| held.parts.clone()).unwrap_or_default();
    let places = cut_places(profile.slices());
    let is = |name: &Profile, slices: u32| name.gpu_instance() == *profile && name.compute_slices() == slices;
    let mut found = HashMap::new();
    apart(&places, &mut Vec::new(), &mut |chosen| {
        let has = |part: &Part| chosen.contains(&(part.0, part.1));
        let declared = |&(_, slices): &(u32, u32)| names.iter().any(|name| is(name, slices));
        if chosen.is_empty() || !chosen.iter().all(declared) || !parts.iter().filter(|part| part.2).all(has) {
            return;
        }
        let gone = parts.iter().filter(|part| !has(part)).count();
        let differs = held.is_some() && (gone > 0 || chosen.len() > parts.len());
        let count = |name: &&Profile| chosen.iter().filter(|(_, slices)| is(name, *slices)).count();
        let counts = names
            .iter()
            .map(|name| u32::try_from(count(name)).expect("few"))
            .collect();
        let cost = (u32::try_from(gone).expect("few"), differs);
        found
            .entry(counts)
            .and_modify(|known: &mut (u32, bool)| *known = cost.min(*known))
            .or_insert(cost);
    });
    found
}

fn apart(rest: &[(u32, u32)], chosen: &mut Vec<(u32, u32)>, end: &mut impl FnMut(&[(u32, u32)])) {
    let Some((&(start, slices), rest)) = rest.split_first() else {
        return end(chosen);
    };
    apart(rest, chosen, end);
    if chosen
        .iter()
        .all(|&(other, of)| start + slices <= other || other + of <= start)
    {
        chosen.push((start, slices));
        apart(rest, chosen, end);
        chosen.pop();
    }
}

/// For each set of places, the slots that no longer fit into it, summed.
pub(crate) fn lost(table: &Table, occupied: u32) -> u32 {
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
