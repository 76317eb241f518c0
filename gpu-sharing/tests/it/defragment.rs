use std::collections::BTreeMap;

use gpu_sharing::mig::{Cost, Defragmentation, Fleet, GpuState, Instance, Mode, Profile, defragment, free};
use proptest::prelude::*;

use crate::{
    brute,
    fleets::{Case, cases, divided, gpu, occupied},
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
    fn the_largest_block_that_so_few_moves_free(case in cases(1..=3, 3, 5, 1, 1), moves in 0_u32..4) {
        let fleet = case.fleet();
        let found = defragment(&fleet, moves).map(|found| (found.profile.clone(), u32::try_from(found.moves.len()).unwrap()));
        prop_assert_eq!(found, largest(&case, &fleet, moves));
    }

    #[test]
    fn a_larger_block_is_free_and_nothing_is_lost(case in divided(1..=4, 4, 6, 1, 1), moves in 0_u32..4) {
        let fleet = case.fleet();
        if let Some(found) = defragment(&fleet, moves) {
            prop_assert!(found.moves.len() <= moves as usize);
            let after = found.plan.after(&fleet).unwrap();
            prop_assert_eq!(movable(&after), movable(&fleet));
            prop_assert_eq!(sizes(&after), sizes(&fleet));
            let gains = after.gpu(&found.gpu).unwrap();
            prop_assert!(gains.board.spec(&found.profile).unwrap().placements.contains(&found.block));
            prop_assert!(gains.instances.iter().all(|held| !held.instance.placement.overlaps(found.block)));
            for (before, after) in fleet.gpus().iter().zip(after.gpus()) {
                prop_assert!(before.instances.iter().filter(|held| held.pinned).all(|held| after.instances.contains(held)));
            }
            each_move_is_made(&found)?;
            prop_assert_eq!(found.plan.cost, cost(&case, &found, &after));
            prop_assert_eq!(found.plan.at_least.destroyed, found.plan.cost.destroyed, "proven for so few GPUs");
        }
    }
}

/// A whole A30 is more than half of an H100, which has more memory.
#[test]
fn the_largest_block_is_that_of_the_largest_share_of_its_gpu() {
    let half = gpu(
        "gpu-0",
        "H100-80GB",
        Mode::Enabled,
        &[("1g.10gb", 0, false), ("1g.10gb", 6, true)],
    );
    let whole = gpu("gpu-1", "A30-24GB", Mode::Enabled, &[("1g.6gb", 0, false)]);
    let room = gpu("gpu-2", "A30-24GB", Mode::Enabled, &[("2g.12gb", 0, true)]);
    let found = |gpus: &[&GpuState]| {
        let fleet = Fleet::new(gpus.iter().map(|&gpu| gpu.clone())).expect("legal");
        let found = defragment(&fleet, 1).expect("one move is enough");
        (found.gpu, found.profile.to_string())
    };
    assert_eq!(
        found(&[&half, &whole, &room]),
        ("gpu-1".to_owned(), "4g.24gb".to_owned())
    );
    assert_eq!(found(&[&half]), ("gpu-0".to_owned(), "4g.40gb".to_owned()));
}

/// What comes first: the share of a GPU, then the fewest places.
fn largest(case: &Case, fleet: &Fleet, moves: u32) -> Option<(Profile, u32)> {
    let mut shapes = Vec::new();
    for gpu in fleet.gpus().iter().filter(|gpu| gpu.mode == Mode::Enabled) {
        for profile in gpu.board.base_profiles() {
            let places = &gpu.board.spec(&profile)?.placements;
            let share = f64::from(places[0].size) / f64::from(gpu.board.memory_slots());
            shapes.push((share, places.len(), profile));
        }
    }
    shapes.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(b.2.cmp(&a.2)));
    for (_, _, profile) in shapes {
        match fewest(case, fleet, &profile) {
            Some(0) => return None, // there is room for it
            Some(n) if n <= moves => return Some((profile, n)),
            _ => {}
        }
    }
    None
}

/// What a plan destroys and makes is what moves, once each.
fn each_move_is_made(found: &Defragmentation) -> Result<(), TestCaseError> {
    let changed = |name: &str| found.plan.changes.iter().find(|change| change.gpu == name);
    for one in &found.moves {
        let count = |instances: &[Instance], placement| {
            let same = |instance: &&Instance| instance.profile == one.profile && instance.placement == placement;
            instances.iter().filter(same).count()
        };
        let gone = changed(&one.from.0).map(|change| count(&change.destroyed, one.from.1));
        let made = changed(&one.to.0).map(|change| count(&change.created, one.to.1));
        prop_assert_eq!((gone, made), (Some(1), Some(1)));
    }
    let gone: usize = found.plan.changes.iter().map(|change| change.destroyed.len()).sum();
    let made: usize = found.plan.changes.iter().map(|change| change.created.len()).sum();
    prop_assert_eq!((gone, made), (found.moves.len(), found.moves.len()));
    Ok(())
}

fn cost(case: &Case, found: &Defragmentation, after: &Fleet) -> Cost {
    let (tables, _) = case.brute();
    let lost = |(gpu, state): (&brute::Gpu, &GpuState)| brute::lost(&gpu.table, occupied(state));
    Cost {
        destroyed: u32::try_from(found.moves.len()).expect("few"),
        touched: u32::try_from(found.plan.changes.len()).expect("few"),
        mode_changes: 0,
        loss: tables.iter().zip(after.gpus()).map(lost).sum(),
    }
}
