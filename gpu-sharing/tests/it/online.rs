use std::sync::Arc;

use gpu_sharing::mig::{
    BestFit, Board, Buddy, Candidate, Catalogue, FirstFit, Geometry, Gradient, Instance, Online, Policy, Prospect,
    Score, States,
};
use proptest::prelude::*;

/// Places and releases on a fleet, and on a plain list of instances that is scanned for every decision.
fn agrees(
    policy: &impl Policy,
    board: &Arc<Board>,
    gpus: usize,
    events: &[(prop::sample::Index, bool)],
) -> Result<(), TestCaseError> {
    let profiles: Vec<_> = board.profiles().iter().map(|spec| spec.profile.clone()).collect();
    let states = States::new(board, &profiles).map_err(|e| TestCaseError::fail(e.to_string()))?;
    let mut online = Online::new(policy, &vec![Arc::clone(board); gpus], &profiles)
        .map_err(|e| TestCaseError::fail(e.to_string()))?;
    let mut lists: Vec<(u16, Vec<Instance>)> = vec![(0, Vec::new()); gpus];
    for (choice, leave) in events {
        let held: Vec<_> = lists
            .iter()
            .enumerate()
            .flat_map(|(gpu, (_, list))| list.iter().map(move |i| (gpu, i.clone())))
            .collect();
        if *leave && !held.is_empty() {
            let (gpu, instance) = choice.get(&held).clone();
            online
                .release(gpu, &instance)
                .map_err(|e| TestCaseError::fail(e.to_string()))?;
            lists[gpu].1.retain(|other| *other != instance);
            lists[gpu].0 = state(&states, &lists[gpu].1);
            continue;
        }
        let profile = choice.index(states.profiles().len());
        let name = &states.profiles()[profile];
        let mut best: Option<(i64, usize, Score, usize)> = None;
        for (gpu, (before, list)) in lists.iter().enumerate() {
            let mut here: Option<(Score, usize)> = None;
            for (placement, at) in states.placements(profile).enumerate() {
                let more = list.iter().cloned().chain([Instance {
                    placement: at,
                    profile: name.clone(),
                }]);
                let fits = Geometry::from_instances(board, more).is_ok();
                let after = states.add(*before, profile, placement);
                prop_assert_eq!(fits, after.is_some(), "{} at {} beside {:?}", name, at, list);
                if let Some(after) = after {
                    let score = policy.score(
                        &states,
                        Candidate {
                            before: *before,
                            profile,
                            placement,
                            after,
                        },
                    );
                    here = Some(here.map_or((score, placement), |known| known.min((score, placement))));
                }
            }
            if let Some((score, placement)) = here {
                let found = (score.gpu, gpu, score, placement);
                best = Some(best.map_or(found, |known| known.min(found)));
            }
        }
        let placed = online.place(name);
        let expected = best.map(|(_, gpu, _, placement)| {
            let placement = states.placements(profile).nth(placement).expect("it was listed");
            (
                gpu,
                Instance {
                    placement,
                    profile: name.clone(),
                },
            )
        });
        prop_assert_eq!(&placed, &expected);
        if let Some((gpu, instance)) = placed {
            lists[gpu].1.push(instance);
            lists[gpu].0 = state(&states, &lists[gpu].1);
        }
    }
    for (gpu, (_, list)) in lists.iter().enumerate() {
        let slots = list
            .iter()
            .flat_map(|i| i.placement.start..i.placement.start + i.placement.size);
        prop_assert_eq!(online.occupied(gpu), Some(slots.fold(0, |mask, slot| mask | 1 << slot)));
    }
    Ok(())
}

fn state(states: &States, list: &[Instance]) -> u16 {
    list.iter().fold(0, |state, instance| {
        let profile = states
            .profiles()
            .iter()
            .position(|p| *p == instance.profile)
            .expect("known");
        let placement = states
            .placements(profile)
            .position(|p| p == instance.placement)
            .expect("known");
        states.add(state, profile, placement).expect("it fits")
    })
}

fn board(name: &str) -> &'static Arc<Board> {
    Catalogue::builtin().board(name).expect("built in")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_decision_is_what_a_scan_of_the_fleet_finds(
        name in prop::sample::select(vec!["H100-80GB", "A30-24GB", "RTX-PRO-6000-Blackwell-96GB", "A100-40GB", "Thor-iGPU"]),
        gpus in 1_usize..5,
        events in prop::collection::vec((any::<prop::sample::Index>(), prop::bool::weighted(0.35)), 1..60),
    ) {
        let board = board(name);
        agrees(&FirstFit, board, gpus, &events)?;
        agrees(&BestFit, board, gpus, &events)?;
        agrees(&Gradient { popularity: vec![0.3, 0.2, 0.2, 0.1, 0.1, 0.1] }, board, gpus, &events)?;
        agrees(&Buddy, board, gpus, &events)?;
        agrees(&Prospect::default(), board, gpus, &events)?;
    }
}

#[test]
fn states_are_as_many_as_choices_differ() {
    #[track_caller]
    fn check(name: &str, profiles: &[&str], expected: usize) {
        let board = board(name);
        let mut names = board.base_profiles();
        names.extend(profiles.iter().map(|name| name.parse().unwrap()));
        assert_eq!(States::new(board, &names).unwrap().len(), expected);
    }
    // By hand: (25 + 1) × (10 + 1) halves and the whole; a 3g and a 4g in the left half are one.
    check("H100-80GB", &[], 26 * 11 + 1);
    check("H100-80GB", &["1g.20gb"], 26 * 16 + 1);
    check("A30-24GB", &[], 5 * 5 + 1);
}
