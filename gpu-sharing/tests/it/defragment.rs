use std::collections::BTreeMap;

use gpu_sharing::mig::{Fleet, Geometry, Instance, Mode, Profile, defragment, free};
use proptest::prelude::*;

use crate::{
    brute,
    fleets::{Case, cases, divided},
};

fn movable(fleet: &Fleet) -> BTreeMap<Profile, u32> {
    let mut all = BTreeMap::new();
    for held in fleet
        .gpus()
        .iter()
        .flat_map(|gpu| &gpu.instances)
        .filter(|held| !held.pinned)
    {
        *all.entry(held.instance.profile.clone()).or_default() += 1;
    }
    all
}

/// The idle GPU instances, each with the sizes of its compute instances.
fn sizes(fleet: &Fleet) -> BTreeMap<(Profile, Vec<u32>), u32> {
    let mut all = BTreeMap::new();
    for held in fleet
        .gpus()
        .iter()
        .flat_map(|gpu| &gpu.instances)
        .filter(|held| !held.pinned)
    {
        let mut sizes: Vec<_> = held.parts().iter().map(|part| part.slices).collect();
        sizes.sort_unstable();
        *all.entry((held.instance.profile.clone(), sizes)).or_default() += 1;
    }
    all
}

/// The fewest moves that make room for a profile, over all GPUs and blocks, by the independent search.
fn fewest(case: &Case, fleet: &Fleet, profile: &Profile) -> Option<u32> {
    let mut fewest = None;
    for (at, gpu) in fleet
        .gpus()
        .iter()
        .enumerate()
        .filter(|(_, gpu)| gpu.mode == Mode::Enabled)
    {
        for block in gpu
            .board
            .spec(profile)
            .map(|spec| spec.placements.clone())
            .unwrap_or_default()
        {
            let (mut gpus, _) = case.brute();
            gpus.retain(|gpu| gpu.enabled);
            let at = fleet.gpus()[..at]
                .iter()
                .filter(|gpu| gpu.mode == Mode::Enabled)
                .count();
            let before = gpus[at].instances.len();
            if gpus[at]
                .instances
                .iter()
                .any(|held| held.is_pinned() && held.at.overlaps(block))
            {
                continue;
            }
            gpus[at].instances.retain(|held| !held.at.overlaps(block));
            let direct = u32::try_from(before - gpus[at].instances.len()).expect("few");
            gpus[at].instances.push(brute::Held {
                profile: profile.clone(),
                at: block,
                parts: vec![(0, profile.slices(), true)],
            });
            if let Some(cost) = brute::least(&gpus, &movable(fleet)) {
                let moves = direct + cost[0];
                fewest = Some(fewest.map_or(moves, |known: u32| known.min(moves)));
            }
        }
    }
    fewest
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn as_few_moves_as_an_independent_search_finds(case in cases(1..=3, 3, 5, 1, 1), at in any::<prop::sample::Index>()) {
        let fleet = case.fleet();
        let names: Vec<_> = fleet.gpus().iter().flat_map(|gpu| gpu.board.base_profiles()).collect();
        let profile = at.get(&names);
        let found = free(&fleet, profile, 99);
        let expected = fewest(&case, &fleet, profile).filter(|&moves| moves > 0);
        prop_assert_eq!(found.as_ref().map(|found| u32::try_from(found.moves.len()).unwrap()), expected);
    }

    #[test]
    fn a_larger_block_is_free_and_nothing_is_lost(case in divided(1..=4, 4, 6, 1, 1), moves in 0_u32..4) {
        let fleet = case.fleet();
        if let Some(found) = defragment(&fleet, moves) {
            prop_assert!(found.moves.len() <= moves as usize);
            let after = found.plan.after(&fleet).unwrap();
            prop_assert_eq!(movable(&after), movable(&fleet));
            prop_assert_eq!(sizes(&after), sizes(&fleet));
            let room = |fleet: &Fleet| {
                fleet.gpus().iter().filter(|gpu| gpu.mode == Mode::Enabled).any(|gpu| {
                    let blocks = gpu.board.spec(&found.profile).map(|spec| spec.placements.clone()).unwrap_or_default();
                    blocks.into_iter().any(|placement| {
                        let more = Instance { placement, profile: found.profile.clone() };
                        let all = gpu.instances.iter().map(|held| held.instance.clone()).chain([more]);
                        Geometry::from_instances(&gpu.board, all).is_ok()
                    })
                })
            };
            prop_assert!(!room(&fleet) && room(&after));
            for (before, after) in fleet.gpus().iter().zip(after.gpus()) {
                prop_assert!(before.instances.iter().filter(|held| held.pinned).all(|held| after.instances.contains(held)));
            }
        }
    }
}
