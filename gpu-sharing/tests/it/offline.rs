use std::collections::BTreeMap;

use gpu_sharing::mig::{Cost, Demand, Fleet, GpuState, Held, Mode, Part, PlanError, Profile, plan};
use proptest::prelude::*;

use crate::{
    brute,
    fleets::{cases, demands, divided, divided_sizes, divided_states, in_brute_words, states, table},
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
    let sizes: Vec<_> = table("A30-24GB").into_iter().map(|row| (row.0, row.2.into())).collect();
    all_agree(states("A30-24GB"), &demands(&sizes, 5));
}

#[test]
fn plans_for_every_division_of_one_gpu_and_every_demand_are_the_least() {
    all_agree(divided_states(), &demands(&divided_sizes(), 4));
}
