use std::{collections::BTreeMap, sync::Arc, time::Duration};

use gpu_sharing::mig::{
    BestFit, Board, Buddy, Candidate, Catalogue, FirstFit, Geometry, Gradient, Instance, Online, OnlineError, Policy,
    Prospect, Score, States,
};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

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

/// H100s with these instances, and a policy.
fn fleet(policy: &impl Policy, gpus: &[&[&str]]) -> Online {
    let board = board("H100-80GB");
    let mut online =
        Online::new(policy, &vec![Arc::clone(board); gpus.len()], &board.base_profiles()).expect("it is offered");
    for (gpu, instances) in gpus.iter().enumerate() {
        for text in *instances {
            online.occupy(gpu, &instance(text)).expect("it fits");
        }
    }
    online
}

/// As a plan prints it: `1g.10gb@6`.
fn instance(text: &str) -> Instance {
    let (profile, start) = text.split_once('@').expect("profile@start");
    let start = start.parse().expect("a number");
    let placed = Geometry::new(board("H100-80GB"), [(profile.parse().expect("a profile"), start)]);
    placed.expect("it is offered there").instances()[0].clone()
}

#[test]
fn each_policy_takes_the_place_that_its_rule_says() {
    #[track_caller]
    fn check(policy: &impl Policy, gpus: &[&[&str]], profile: &str, expected: Option<(usize, &str)>) {
        let placed = fleet(policy, gpus).place(&profile.parse().expect("a profile"));
        let placed = placed.map(|(gpu, instance)| (gpu, instance.to_string()));
        let placed = placed.as_ref().map(|(gpu, instance)| (*gpu, instance.as_str()));
        assert_eq!(placed, expected);
    }
    // As the driver places on an empty GPU.
    check(&FirstFit, &[&[]], "1g.10gb", Some((0, "1g.10gb@6")));
    check(&FirstFit, &[&[]], "2g.20gb", Some((0, "2g.20gb@0")));
    check(&FirstFit, &[&[]], "3g.40gb", Some((0, "3g.40gb@4")));
    check(
        &FirstFit,
        &[&["7g.80gb@0"], &[], &["1g.10gb@6"]],
        "1g.10gb",
        Some((1, "1g.10gb@6")),
    );
    check(
        &FirstFit,
        &[&["1g.10gb@0"], &["1g.10gb@5", "4g.40gb@0"]],
        "4g.40gb",
        None,
    );
    // The fullest GPU that has room.
    check(
        &BestFit,
        &[&[], &["1g.10gb@6"], &["3g.40gb@0"]],
        "1g.10gb",
        Some((2, "1g.10gb@6")),
    );
    check(
        &BestFit,
        &[&[], &["1g.10gb@6"], &["3g.40gb@0", "3g.40gb@4"]],
        "2g.20gb",
        Some((1, "2g.20gb@0")),
    );
    // Only halves are asked for: a slice goes where no half is lost.
    let halves = Gradient {
        popularity: vec![0.0, 0.0, 1.0, 0.0, 0.0],
    };
    check(&halves, &[&[], &["1g.10gb@0"]], "1g.10gb", Some((1, "1g.10gb@3")));
    // Only pairs are.
    let pairs = Gradient {
        popularity: vec![0.0, 1.0],
    };
    let (left, both): (&[&str], &[&str]) = (&["1g.10gb@6"], &["1g.10gb@0", "1g.10gb@6"]);
    check(&pairs, &[left, both], "1g.10gb", Some((1, "1g.10gb@1")));
    // The smallest free block with room: beside another slice, then in a broken half.
    check(&Buddy, &[&[], &["1g.10gb@2"]], "1g.10gb", Some((1, "1g.10gb@3")));
    check(&Buddy, &[&[], &["2g.20gb@2"]], "1g.10gb", Some((1, "1g.10gb@0")));
    check(&Buddy, &[&[], &["3g.40gb@0"]], "3g.40gb", Some((1, "3g.40gb@4")));
    // Blocks that are broken already, and of two such halves the one that more departures keep from being whole.
    check(
        &Prospect::default(),
        &[&[], &["3g.40gb@0"]],
        "3g.40gb",
        Some((1, "3g.40gb@4")),
    );
    check(
        &Prospect::default(),
        &[&[], &["1g.10gb@2"]],
        "1g.10gb",
        Some((1, "1g.10gb@3")),
    );
    check(
        &Prospect::default(),
        &[&["2g.20gb@0", "3g.40gb@4"], &["1g.10gb@0", "1g.10gb@1", "3g.40gb@4"]],
        "2g.20gb",
        Some((1, "2g.20gb@2")),
    );
}

#[test]
fn what_cannot_be_in_a_fleet_is_refused_by_name() {
    let mut online = fleet(&Buddy, &[&["3g.40gb@0"], &[]]);
    let refused = |result: Result<(), OnlineError>| result.expect_err("it cannot be").to_string();
    assert_eq!(
        refused(online.occupy(0, &instance("4g.40gb@0"))),
        "GPU 0 has no room for `4g.40gb@0`"
    );
    assert_eq!(refused(online.occupy(2, &instance("4g.40gb@0"))), "there is no GPU 2");
    assert_eq!(refused(online.release(2, &instance("4g.40gb@0"))), "there is no GPU 2");
    assert_eq!(
        refused(online.release(1, &instance("3g.40gb@0"))),
        "GPU 1 has no `3g.40gb@0`"
    );
    assert_eq!(online.occupied(2), None);
    online.release(0, &instance("3g.40gb@0")).expect("it is there");
    online.occupy(0, &instance("4g.40gb@0")).expect("there is room now");
    assert_eq!(online.occupied(0), Some(0b1111));
    let other = ["1g.5gb".parse().expect("a profile")];
    let refused = Online::new(&Buddy, &[Arc::clone(board("H100-80GB"))], &other).expect_err("not offered");
    assert_eq!(refused.to_string(), "`H100-80GB` offers none of the profiles");
}

/// Requests for one of six profiles, one at a time, and how long each lasts: exponential, and so that all of them together
/// would just fill 100 GPUs, 228 × 3.5 slots.
fn requests() -> Vec<(usize, u64)> {
    let mut runner = TestRunner::deterministic();
    let request = (0_usize..6, 0.0..1.0_f64).prop_map(|(profile, share)| {
        let lasts = Duration::from_secs_f64(-(1.0 - share).ln() * 228.0);
        (profile, 1 + lasts.as_secs())
    });
    let one = |_| request.new_tree(&mut runner).expect("a request").current();
    (0..20_000).map(one).collect()
}

/// Slots that a policy serves of them.
fn served(policy: &impl Policy, requests: &[(usize, u64)]) -> u64 {
    let board = board("H100-80GB");
    let mut profiles = board.base_profiles();
    profiles.push("1g.20gb".parse().expect("a profile"));
    let mut online = Online::new(policy, &vec![Arc::clone(board); 100], &profiles).expect("it is offered");
    let mut leave: BTreeMap<u64, Vec<(usize, Instance)>> = BTreeMap::new();
    let mut slots = 0;
    for (now, &(profile, lasts)) in (0..).zip(requests) {
        for (gpu, instance) in leave.remove(&now).unwrap_or_default() {
            online.release(gpu, &instance).expect("it is there");
        }
        if let Some((gpu, instance)) = online.place(&profiles[profile]) {
            slots += u64::from(instance.placement.size);
            leave.entry(now + lasts).or_default().push((gpu, instance));
        }
    }
    slots
}

#[test]
fn the_default_policy_serves_the_most() {
    let requests = requests();
    let own = served(&Prospect::default(), &requests);
    for (name, other) in [
        ("first fit", served(&FirstFit, &requests)),
        ("best fit", served(&BestFit, &requests)),
        (
            "gradient",
            served(
                &Gradient {
                    popularity: vec![1.0; 6],
                },
                &requests,
            ),
        ),
        ("buddy", served(&Buddy, &requests)),
    ] {
        assert!(own > other, "{name}: {own} against {other}");
    }
}
