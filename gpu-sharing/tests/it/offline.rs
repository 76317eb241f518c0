use std::collections::BTreeMap;

use gpu_sharing::mig::{Cost, Demand, Fleet, Held, Mode, PlanError, plan};
use proptest::prelude::*;

use crate::{
    brute,
    fleets::{Case, cases},
};

/// The plan costs what the independent search found, or is refused where that found none.
fn agrees(case: &Case) -> Result<(), TestCaseError> {
    let (fleet, demand) = (case.fleet(), case.demand());
    let (gpus, wanted) = case.brute();
    let least = brute::least(&gpus, &wanted).map(Cost::from);
    match plan(&fleet, &demand) {
        Ok(plan) => {
            prop_assert_eq!(Some(plan.cost), least);
            prop_assert!(plan.is_proven_least(), "{:?}", plan);
            sound(&fleet, &demand, &plan)?;
        }
        Err(PlanError::Short(shortage)) => {
            prop_assert_eq!(least, None);
            let mut upto: BTreeMap<_, _> = shortage.beside.iter().cloned().collect();
            upto.insert(shortage.profile.clone(), shortage.wanted);
            let fit = brute::most_beside(&gpus, &upto, &shortage.profile);
            prop_assert_eq!(fit, Some(shortage.wanted - shortage.short), "{}", shortage);
        }
        Err(PlanError::NotOffered { profile, .. }) => {
            prop_assert!(fleet.gpus().iter().all(|gpu| gpu.board.spec(&profile).is_none()));
        }
        Err(other) => prop_assert!(false, "{}", other),
    }
    Ok(())
}

/// What holds for every plan, least or not.
fn sound(fleet: &Fleet, demand: &Demand, made: &gpu_sharing::mig::Plan) -> Result<(), TestCaseError> {
    let after = made
        .after(fleet)
        .map_err(|error| TestCaseError::fail(error.to_string()))?;
    let idle = |fleet: &Fleet| -> BTreeMap<_, u32> {
        let mut idle = BTreeMap::new();
        for Held { instance, .. } in fleet
            .gpus()
            .iter()
            .flat_map(|gpu| &gpu.instances)
            .filter(|held| !held.pinned)
        {
            *idle.entry(instance.profile.clone()).or_default() += 1;
        }
        idle
    };
    let free = idle(&after);
    for (profile, n) in demand.iter() {
        prop_assert!(free.get(profile).is_some_and(|&free| free >= n), "{} of {}", n, profile);
    }
    for (before, after) in fleet.gpus().iter().zip(after.gpus()) {
        for held in before.instances.iter().filter(|held| held.pinned) {
            prop_assert!(
                after.instances.contains(held),
                "{} stays on {}",
                held.instance,
                before.name
            );
        }
        prop_assert!(before.mode != Mode::Unavailable || before == after);
    }
    prop_assert_eq!(
        made.serving.len(),
        usize::try_from(demand.iter().map(|(_, n)| n).sum::<u32>()).expect("few")
    );
    for (name, instance) in &made.serving {
        let gpu = after.gpu(name).expect("a GPU of the fleet");
        let held = Held::whole(instance.clone(), false);
        prop_assert!(gpu.instances.contains(&held), "{} on {}", instance, name);
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
    #![proptest_config(ProptestConfig { cases: 120, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_for_one_gpu_are_the_least(case in cases(1..=1, 4, 6, 4, 4)) {
        agrees(&case)?;
    }

    #[test]
    fn plans_for_up_to_three_gpus_are_the_least(case in cases(2..=3, 4, 6, 5, 4)) {
        agrees(&case)?;
    }

    #[test]
    fn plans_for_three_gpus_of_one_board_are_the_least(case in cases(3..=3, 1, 7, 6, 6)) {
        agrees(&case)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_for_eight_gpus_are_the_least(case in cases(8..=8, 3, 7, 4, 5)) {
        agrees(&case)?;
    }
}
