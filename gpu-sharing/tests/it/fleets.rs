//! Random fleets and demands, in the crate's words and in those of the independent search.

use std::{collections::BTreeMap, sync::Arc};

use gpu_sharing::mig::{Catalogue, Compute, Demand, Fleet, Geometry, GpuState, Held, Instance, Mode, Part, Profile};
use proptest::prelude::*;

use crate::brute;

/// A GPU of a board with whole instances: profile, start, and whether it is pinned.
pub(crate) fn gpu(name: &str, board: &str, mode: Mode, instances: &[(&str, u8, bool)]) -> GpuState {
    let board = Arc::clone(Catalogue::builtin().board(board).expect("built in"));
    let held = |(profile, start, pinned): &(&str, u8, bool)| {
        let placed = Geometry::new(&board, [(profile.parse().expect("a profile"), *start)]).expect("it fits");
        Held::whole(placed.instances()[0].clone(), *pinned)
    };
    let instances = instances.iter().map(held).collect();
    GpuState {
        name: name.into(),
        board,
        mode,
        instances,
    }
}

/// A GPU before its instances are known to fit.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    board: usize,
    enabled: bool,
    tries: Vec<Try>,
}

/// An instance that may fit.
#[derive(Debug, Clone)]
struct Try {
    /// Which of all placements of the board.
    place: prop::sample::Index,
    pinned: bool,
    /// Which compute instances to try in it, and which of them are pinned then; none for one of its whole size.
    cuts: Option<Vec<(prop::sample::Index, bool)>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) gpus: Vec<Draft>,
    demand: Vec<Asked>,
}

#[derive(Debug, Clone)]
struct Asked {
    board: usize,
    profile: prop::sample::Index,
    /// Of which of its sizes compute instances are wanted, if not GPU instances.
    size: Option<prop::sample::Index>,
    n: u32,
}

const BOARDS: [&str; 4] = ["H100-80GB", "A30-24GB", "A100-40GB", "RTX-PRO-6000-Blackwell-96GB"];

/// Fleets of these boards; a GPU has up to `held` instances, a demand up to `kinds` profiles of up to `most` each.
pub(crate) fn cases(
    gpus: std::ops::RangeInclusive<usize>,
    boards: usize,
    held: usize,
    kinds: usize,
    most: u32,
) -> impl Strategy<Value = Case> {
    drafts(gpus, boards, held, kinds, most, false)
}

/// The same with GPU instances that are divided, and demands of compute instances.
pub(crate) fn divided(
    gpus: std::ops::RangeInclusive<usize>,
    boards: usize,
    held: usize,
    kinds: usize,
    most: u32,
) -> impl Strategy<Value = Case> {
    drafts(gpus, boards, held, kinds, most, true)
}

/// A GPU, and another of its board that has some of the same instances, some of them divided otherwise.
pub(crate) fn neighbours() -> impl Strategy<Value = (Case, Case)> {
    let gpu = || divided(1..=1, 4, 5, 1, 1);
    (gpu(), gpu(), prop::collection::vec(0..6, 5)).prop_map(|(from, mut to, fate)| {
        let (from_gpu, to_gpu) = (&from.gpus[0], &mut to.gpus[0]);
        let others = std::mem::take(&mut to_gpu.tries);
        let again = |(at, (one, fate)): (usize, (&Try, &i32))| match fate {
            0 => None,
            1 => Some(Try {
                cuts: others.get(at).and_then(|other| other.cuts.clone()),
                ..one.clone()
            }),
            _ => Some(one.clone()),
        };
        let stay = from_gpu.tries.iter().zip(&fate).enumerate().filter_map(again);
        to_gpu.tries = stay.chain(others.iter().cloned()).collect();
        (to_gpu.board, to_gpu.enabled) = (from_gpu.board, true);
        (from, to)
    })
}

fn drafts(
    gpus: std::ops::RangeInclusive<usize>,
    boards: usize,
    held: usize,
    kinds: usize,
    most: u32,
    divided: bool,
) -> impl Strategy<Value = Case> {
    let index = || any::<prop::sample::Index>();
    let cuts = prop::collection::vec((index(), prop::bool::weighted(0.3)), 0..=4);
    let one = (index(), prop::bool::weighted(0.4), prop::option::weighted(0.6, cuts));
    let one = one.prop_map(move |(place, pinned, cuts)| Try {
        place,
        pinned,
        cuts: cuts.filter(|_| divided),
    });
    let tries = prop::collection::vec(one, 0..=held);
    let gpu = (0..boards, prop::bool::weighted(0.85), tries).prop_map(|(board, enabled, tries)| Draft {
        board,
        enabled,
        tries,
    });
    let asked = (0..boards, index(), prop::option::weighted(0.6, index()), 1..=most);
    let asked = asked.prop_map(move |(board, profile, size, n)| Asked {
        board,
        profile,
        size: size.filter(|_| divided),
        n,
    });
    let demand = prop::collection::vec(asked, 1..=kinds);
    (prop::collection::vec(gpu, gpus), demand).prop_map(|(gpus, demand)| Case { gpus, demand })
}

impl Case {
    pub(crate) fn fleet(&self) -> Fleet {
        let gpus = self.gpus.iter().enumerate().map(|(at, draft)| draft.state(at));
        Fleet::new(gpus).expect("drafts keep to the board")
    }

    pub(crate) fn demand(&self) -> Demand {
        let profile = |asked: &Asked| -> Profile {
            let names = tables()[asked.board]
                .iter()
                .map(|row| row.0.clone())
                .collect::<Vec<_>>();
            let whole = asked.profile.get(&names);
            match asked.size.map(|size| size.get(brute::cuts(whole.slices())).0) {
                Some(size) if size != whole.slices() => format!("{size}c.{whole}").parse().expect("a profile"),
                _ => whole.clone(),
            }
        };
        self.demand.iter().map(|asked| (profile(asked), asked.n)).collect()
    }

    pub(crate) fn brute(&self) -> (Vec<brute::Gpu>, BTreeMap<Profile, u32>) {
        in_brute_words(&self.fleet(), &self.demand())
    }
}

/// The same fleet and demand for the independent search.
pub(crate) fn in_brute_words(fleet: &Fleet, demand: &Demand) -> (Vec<brute::Gpu>, BTreeMap<Profile, u32>) {
    let demand = demand.iter().map(|(profile, n)| (profile.clone(), n)).collect();
    (fleet.gpus().iter().map(brute_gpu).collect(), demand)
}

fn brute_gpu(gpu: &GpuState) -> brute::Gpu {
    let part = |part: Part| (part.start, part.slices, part.pinned);
    let held = |held: &Held| brute::Held {
        profile: held.instance.profile.clone(),
        at: held.instance.placement,
        parts: held.parts().into_iter().map(part).collect(),
    };
    brute::Gpu {
        table: table(gpu.board.name()),
        enabled: gpu.mode == Mode::Enabled,
        instances: gpu.instances.iter().map(held).collect(),
    }
}

/// The independent table of a board.
pub(crate) fn table(board: &str) -> brute::Table {
    let at = BOARDS.iter().position(|name| *name == board).expect("one of these");
    tables()[at].clone()
}

impl Draft {
    fn state(&self, at: usize) -> GpuState {
        let board = Arc::clone(Catalogue::builtin().board(BOARDS[self.board]).expect("built in"));
        // Engines are not in the independent tables, so RTX PRO instances keep to profiles that they do not limit.
        let names: Vec<_> = tables()[self.board].iter().map(|row| row.0.clone()).collect();
        let places: Vec<Instance> = names
            .iter()
            .flat_map(|profile| {
                let spec = board.spec(profile).expect("the tables agree");
                spec.placements.iter().map(|&placement| Instance {
                    placement,
                    profile: profile.clone(),
                })
            })
            .collect();
        let mut instances: Vec<Held> = Vec::new();
        for one in self.tries.iter().filter(|_| self.enabled) {
            let more = one.held(one.place.get(&places).clone());
            let all = instances.iter().chain([&more]).map(|held| held.instance.clone());
            if Geometry::from_instances(&board, all).is_ok() {
                instances.push(more);
            }
        }
        let mode = if self.enabled { Mode::Enabled } else { Mode::Disabled };
        GpuState {
            name: format!("gpu-{at}"),
            board,
            mode,
            instances,
        }
    }
}

impl Try {
    fn held(&self, instance: Instance) -> Held {
        let Some(cuts) = &self.cuts else {
            return Held::whole(instance, self.pinned);
        };
        let whole = instance.profile.slices();
        let places = brute::cut_places(whole);
        let mut parts: Vec<Part> = Vec::new();
        for (at, pinned) in cuts {
            let &(start, slices) = at.get(&places);
            if parts
                .iter()
                .all(|other| start + slices <= other.start || other.start + other.slices <= start)
            {
                parts.push(Part {
                    start,
                    slices,
                    pinned: *pinned,
                });
            }
        }
        parts.sort_unstable();
        if let [part] = parts[..]
            && part.slices == whole
        {
            return Held::whole(instance, part.pinned);
        }
        Held {
            instance,
            pinned: parts.iter().any(|part| part.pinned),
            compute: Compute::Parts(parts),
        }
    }
}

/// The memory slots that the instances of a GPU take, as bits.
pub(crate) fn occupied(gpu: &GpuState) -> u32 {
    let slots = gpu.instances.iter().flat_map(|held| {
        let place = held.instance.placement;
        place.start..place.start + place.size
    });
    slots.fold(0, |mask, slot| mask | 1 << slot)
}

fn tables() -> [brute::Table; 4] {
    let eight = |names: [&str; 7]| {
        let [one, me, double, two, three, four, seven] = names;
        brute::table(&[
            (one, &[0, 1, 2, 3, 4, 5, 6], 1, 7),
            (me, &[0, 1, 2, 3, 4, 5, 6], 1, 1),
            (double, &[0, 2, 4, 6], 2, 4),
            (two, &[0, 2, 4], 2, 3),
            (three, &[0, 4], 4, 2),
            (four, &[0], 4, 1),
            (seven, &[0], 8, 1),
        ])
    };
    [
        eight([
            "1g.10gb",
            "1g.10gb+me",
            "1g.20gb",
            "2g.20gb",
            "3g.40gb",
            "4g.40gb",
            "7g.80gb",
        ]),
        brute::table(&[
            ("1g.6gb", &[0, 1, 2, 3], 1, 4),
            ("1g.6gb+me", &[0, 1, 2, 3], 1, 1),
            ("2g.12gb", &[0, 2], 2, 2),
            ("4g.24gb", &[0], 4, 1),
        ]),
        // 1g.10gb is the 1g of an H100-80GB and the double memory profile of this one.
        eight([
            "1g.5gb",
            "1g.5gb+me",
            "1g.10gb",
            "2g.10gb",
            "3g.20gb",
            "4g.20gb",
            "7g.40gb",
        ]),
        brute::table(&[
            ("1g.24gb", &[0, 3, 6, 9], 3, 4),
            ("1g.24gb+gfx", &[0, 3, 6, 9], 3, 4),
            ("2g.48gb", &[0, 6], 6, 2),
            ("4g.96gb", &[0], 12, 1),
        ]),
    ]
}

/// Every state that a GPU of a board can be in with whole instances: which there are, and which of these are in use.
pub(crate) fn states(board: &str) -> Vec<GpuState> {
    let profiles: Vec<_> = table(board).into_iter().map(|row| row.0).collect();
    let in_use = |geometry: &Geometry| {
        let instances = geometry.instances().to_vec();
        (0..1_u32 << instances.len()).map(move |pinned| {
            let held = |(at, instance): (usize, &Instance)| Held::whole(instance.clone(), pinned & 1 << at != 0);
            instances.iter().enumerate().map(held).collect()
        })
    };
    let of_board = Catalogue::builtin().board(board).expect("built in");
    let all = Geometry::enumerate(of_board, &profiles);
    let enabled = all.iter().flat_map(in_use).map(|instances| GpuState {
        instances,
        ..gpu("gpu-0", board, Mode::Enabled, &[])
    });
    enabled.chain([gpu("gpu-0", board, Mode::Disabled, &[])]).collect()
}

/// Every demand of profiles and their sizes that takes no more than so much in all.
pub(crate) fn demands(profiles: &[(Profile, u32)], room: u32) -> Vec<Demand> {
    let mut all = vec![(Demand::default(), 0)];
    for (profile, size) in profiles {
        let with = |(demand, taken): &(Demand, u32)| {
            let (mut demand, mut taken) = (demand.clone(), *taken);
            let mut more = vec![(demand.clone(), taken)];
            while taken + size <= room {
                demand.add(profile.clone(), 1);
                taken += size;
                more.push((demand.clone(), taken));
            }
            more
        };
        all = all.iter().flat_map(with).collect();
    }
    all.into_iter().map(|(demand, _)| demand).collect()
}

/// Every way to divide a GPU instance of so many slices, each part idle and in use.
fn divisions(slices: u32) -> Vec<Compute> {
    let mut all: Vec<Vec<Part>> = vec![Vec::new()];
    for (start, slices) in brute::cut_places(slices) {
        let with = |parts: &Vec<Part>| {
            let free = |part: &Part| part.start + part.slices <= start || start + slices <= part.start;
            let one = |pinned| [&parts[..], &[Part { start, slices, pinned }]].concat();
            let more = parts.iter().all(free).then(|| [one(false), one(true)]);
            more.into_iter().flatten().chain([parts.clone()]).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    let whole = |part: &Part| part.slices == slices;
    all.retain(|parts| !parts.iter().any(whole)); // those are not written as parts
    for parts in &mut all {
        parts.sort_unstable();
    }
    all.into_iter().map(Compute::Parts).chain([Compute::Whole]).collect()
}

/// Every division of an A30 that is one GPU instance, or of whose halves one or both are.
pub(crate) fn divided_states() -> Vec<GpuState> {
    let state = |instances: &[(&str, u8, bool)], parts: &[&Compute]| {
        let mut gpu = gpu("gpu-0", "A30-24GB", Mode::Enabled, instances);
        for (held, &compute) in gpu.instances.iter_mut().zip(parts) {
            held.compute = compute.clone();
            held.pinned |= held.parts().iter().any(|part| part.pinned);
        }
        gpu
    };
    let (four, two) = (("4g.24gb", 0, false), [("2g.12gb", 0, false), ("2g.12gb", 2, false)]);
    let halves = divisions(2);
    let mut all: Vec<_> = divisions(4).iter().map(|parts| state(&[four], &[parts])).collect();
    for left in &halves {
        all.push(state(&two[..1], &[left]));
        all.extend(halves.iter().map(|right| state(&two, &[left, right])));
    }
    all
}

/// What can be wanted of those, and the slices that it takes.
pub(crate) fn divided_sizes() -> [(Profile, u32); 5] {
    let names = ["1c.4g.24gb", "2c.4g.24gb", "4g.24gb", "1c.2g.12gb", "2g.12gb"];
    names.map(|name| {
        let profile: Profile = name.parse().expect("a profile");
        let slices = profile.compute_slices();
        (profile, slices)
    })
}
