use std::{collections::BTreeMap, sync::Arc};

use gpu_sharing::mig::{
    Catalogue, Compute, Cost, Demand, Fleet, Geometry, GpuState, Held, Mode, Part, PlanError, Profile, plan,
};
use proptest::prelude::*;

use crate::{
    brute,
    fleets::{cases, divided, gpu, in_brute_words, table},
};

/// The plan costs what the independent search found, or is refused where that found none.
fn agrees(fleet: &Fleet, demand: &Demand) -> Result<(), TestCaseError> {
    let (gpus, wanted) = in_brute_words(fleet, demand);
    let least = brute::least(&gpus, &wanted).map(Cost::from);
    match plan(fleet, demand) {
        Ok(plan) => {
            prop_assert_eq!(Some(plan.cost), least);
            prop_assert!(plan.is_proven_least(), "{:?}", plan);
            sound(fleet, demand, &plan)?;
        }
        Err(PlanError::Short(shortage)) => {
            prop_assert_eq!(least, None);
            let mut upto: BTreeMap<_, _> = shortage.beside.iter().cloned().collect();
            upto.insert(shortage.profile.clone(), shortage.wanted);
            let fit = brute::most_beside(&gpus, &upto, &shortage.profile);
            prop_assert_eq!(fit, Some(shortage.wanted - shortage.short), "{}", shortage);
        }
        Err(PlanError::NotOffered { profile, .. }) => {
            prop_assert!(
                fleet
                    .gpus()
                    .iter()
                    .all(|gpu| gpu.board.spec(&profile.gpu_instance()).is_none())
            );
        }
        Err(other) => prop_assert!(false, "{}", other),
    }
    Ok(())
}

/// The name of a compute instance of so many slices.
fn named(profile: &Profile, slices: u32) -> Profile {
    if slices == profile.slices() {
        profile.clone()
    } else {
        format!("{slices}c.{profile}").parse().expect("a profile")
    }
}

/// What holds for every plan, least or not.
fn sound(fleet: &Fleet, demand: &Demand, made: &gpu_sharing::mig::Plan) -> Result<(), TestCaseError> {
    let after = made
        .after(fleet)
        .map_err(|error| TestCaseError::fail(error.to_string()))?;
    // By the names of compute instances: `2g.20gb`, or `1c.2g.20gb`.
    let idle = |fleet: &Fleet| -> BTreeMap<Profile, u32> {
        let mut idle = BTreeMap::new();
        for held in fleet.gpus().iter().flat_map(|gpu| &gpu.instances) {
            for part in held.parts().iter().filter(|part| !part.pinned) {
                *idle.entry(named(&held.instance.profile, part.slices)).or_default() += 1;
            }
        }
        idle
    };
    let free = idle(&after);
    for (profile, n) in demand.iter() {
        prop_assert!(free.get(profile).is_some_and(|&free| free >= n), "{} of {}", n, profile);
    }
    for (before, after) in fleet.gpus().iter().zip(after.gpus()) {
        for held in &before.instances {
            let now = after.instances.iter().find(|now| now.instance == held.instance);
            let now = now.map(Held::parts).unwrap_or_default();
            let used = held.parts().into_iter().filter(|part| part.pinned);
            for part in used {
                prop_assert!(now.contains(&part), "{} stays on {}", held.instance, before.name);
            }
        }
        prop_assert!(before.mode != Mode::Unavailable || before == after);
    }
    prop_assert_eq!(
        made.serving.len(),
        usize::try_from(demand.iter().map(|(_, n)| n).sum::<u32>()).expect("few")
    );
    for (name, instance) in &made.serving {
        let gpu = after.gpu(name).expect("a GPU of the fleet");
        let serves = |held: &Held| {
            let of_size = |part: &Part| !part.pinned && part.slices == instance.profile.compute_slices();
            let whole = instance.profile.gpu_instance();
            held.instance.placement == instance.placement
                && held.instance.profile == whole
                && held.parts().iter().any(of_size)
        };
        prop_assert!(gpu.instances.iter().any(serves), "{} on {}", instance, name);
    }
    let again = plan(&after, demand).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert!(
        again.changes.is_empty(),
        "a plan that was carried out asks for nothing more: {:?}",
        again
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_for_one_gpu_are_the_least(case in cases(1..=1, 4, 6, 4, 4)) {
        agrees(&case.fleet(), &case.demand())?;
    }

    #[test]
    fn plans_with_compute_instances_for_one_gpu_are_the_least(case in divided(1..=1, 4, 6, 4, 4)) {
        agrees(&case.fleet(), &case.demand())?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_for_up_to_three_gpus_are_the_least(case in cases(2..=3, 4, 6, 5, 4)) {
        agrees(&case.fleet(), &case.demand())?;
    }

    #[test]
    fn plans_for_three_gpus_of_one_board_are_the_least(case in cases(3..=3, 1, 7, 6, 6)) {
        agrees(&case.fleet(), &case.demand())?;
    }

    #[test]
    fn plans_with_compute_instances_for_up_to_three_gpus_are_the_least(case in divided(2..=3, 3, 5, 4, 4)) {
        agrees(&case.fleet(), &case.demand())?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_for_eight_gpus_are_the_least(case in cases(8..=8, 3, 7, 4, 5)) {
        agrees(&case.fleet(), &case.demand())?;
    }
}

/// Every state that a GPU of a board can be in with whole instances: which there are, and which of these are in use.
fn states(board: &str, profiles: &[Profile]) -> Vec<GpuState> {
    let board = Catalogue::builtin().board(board).expect("built in");
    let gpu = |mode, instances| GpuState {
        name: "gpu-0".to_owned(),
        board: Arc::clone(board),
        mode,
        instances,
    };
    let in_use = |geometry: &Geometry| {
        let instances = geometry.instances().to_vec();
        (0..1_u32 << instances.len()).map(move |pinned| {
            let held = |(at, instance): (usize, &_)| Held::whole(Clone::clone(instance), pinned & 1 << at != 0);
            instances.iter().enumerate().map(held).collect()
        })
    };
    let all = Geometry::enumerate(board, profiles);
    let enabled = all
        .iter()
        .flat_map(in_use)
        .map(|instances| gpu(Mode::Enabled, instances));
    enabled.chain([gpu(Mode::Disabled, Vec::new())]).collect()
}

/// Every demand of profiles and their sizes that takes no more than so much in all.
fn demands(profiles: &[(Profile, u32)], room: u32) -> Vec<Demand> {
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

#[track_caller]
fn all_agree(states: Vec<GpuState>, demands: &[Demand]) {
    for gpu in states {
        let fleet = Fleet::new([gpu]).expect("a legal state");
        for demand in demands {
            if let Err(error) = agrees(&fleet, demand) {
                panic!("{demand} on {:?}: {error}", fleet.gpus()[0].instances);
            }
        }
    }
}

#[test]
fn plans_for_every_state_of_one_gpu_and_every_demand_are_the_least() {
    let table = table("A30-24GB");
    let profiles: Vec<_> = table.iter().map(|row| row.0.clone()).collect();
    let sizes: Vec<_> = table.iter().map(|row| (row.0.clone(), row.2.into())).collect();
    all_agree(states("A30-24GB", &profiles), &demands(&sizes, 5));
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
    all.iter_mut().for_each(|parts| parts.sort_unstable());
    all.into_iter().map(Compute::Parts).chain([Compute::Whole]).collect()
}

#[test]
fn plans_for_every_division_of_one_gpu_and_every_demand_are_the_least() {
    let divided = |instances: &[(&str, u8, bool)], parts: &[&Compute]| {
        let mut gpu = gpu("gpu-0", "A30-24GB", Mode::Enabled, instances);
        for (held, &compute) in gpu.instances.iter_mut().zip(parts) {
            held.compute = compute.clone();
            held.pinned |= held.parts().iter().any(|part| part.pinned);
        }
        gpu
    };
    let (twos, fours) = (divisions(2), divisions(4));
    let mut states: Vec<_> = fours
        .iter()
        .map(|four| divided(&[("4g.24gb", 0, false)], &[four]))
        .collect();
    for left in &twos {
        states.push(divided(&[("2g.12gb", 0, false)], &[left]));
        let two = [("2g.12gb", 0, false), ("2g.12gb", 2, false)];
        states.extend(twos.iter().map(|right| divided(&two, &[left, right])));
    }
    let names = [
        ("1c.4g.24gb", 1),
        ("2c.4g.24gb", 2),
        ("4g.24gb", 4),
        ("1c.2g.12gb", 1),
        ("2g.12gb", 2),
    ];
    let sizes = names.map(|(name, size)| (name.parse().expect("a profile"), size));
    all_agree(states, &demands(&sizes, 4));
}
