//! MIG planning: one decision of the online policy beside first-fit's on the same fleet, and a plan for a whole fleet and for
//! a whole GPU that is to be emptied.

use std::{hint::black_box, sync::Arc};

use criterion::{Criterion, criterion_group, criterion_main};
use gpu_sharing::mig::{
    Catalogue, Demand, FirstFit, Fleet, Geometry, GpuState, Held, Instance, Mode, Online, Policy, Profile, Prospect,
    defragment, plan,
};

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % n as u64).unwrap_or(0)
    }
}

/// A release and a placement on a fleet that is full but for what was just released.
fn decide(criterion: &mut Criterion, name: &str, policy: &impl Policy, gpus: usize) {
    let board = Catalogue::builtin().board("H100-80GB").expect("built in");
    let profiles: Vec<Profile> = board.base_profiles();
    let mut fleet = Online::new(policy, &vec![Arc::clone(board); gpus], &profiles).expect("the board has profiles");
    let mut random = Random(1);
    let mut held = Vec::new();
    while let Some(placed) = fleet.place(&profiles[random.below(profiles.len())]) {
        held.push(placed);
    }
    criterion.bench_function(&format!("release and place, {name}, {gpus} GPUs"), |bencher| {
        bencher.iter(|| {
            let at = random.below(held.len());
            let (gpu, instance) = held[at].clone();
            fleet.release(gpu, &instance).expect("it is there");
            held[at] = black_box(fleet.place(&instance.profile)).expect("what was released has room");
        });
    });
}

/// GPUs of three boards, 30 % of all slots pinned and 30 % idle, and 95 % of a hidden filling of what is not pinned, every other
/// one of the smallest profile: for 1,000 GPUs some 2,900 requests.
fn fleet_of(gpus: usize) -> (Fleet, Demand) {
    let mut random = Random(1);
    let boards = ["H100-80GB", "A30-24GB", "RTX-PRO-6000-Blackwell-96GB"];
    let mut demand = Demand::default();
    let (mut slots, mut taken, mut hidden_count) = (0, [0, 0], 0_usize);
    let state = |at: usize| {
        let board = Arc::clone(Catalogue::builtin().board(boards[at % 3]).expect("built in"));
        let profiles = board.base_profiles();
        slots += usize::from(board.memory_slots());
        let mut more = |held: &[Held], small: bool| {
            let smallest = small && random.below(2) > 0;
            let profile = &profiles[if smallest { 0 } else { random.below(profiles.len()) }];
            let places = &board.spec(profile)?.placements;
            let placement = places[random.below(places.len())];
            let one = Instance {
                placement,
                profile: profile.clone(),
            };
            let all = held.iter().map(|held| held.instance.clone()).chain([one.clone()]);
            Geometry::from_instances(&board, all).is_ok().then_some(one)
        };
        let mut instances: Vec<Held> = Vec::new();
        for (pinned, taken) in [true, false].into_iter().zip(&mut taken) {
            for _ in 0..20 {
                if 10 * *taken < 3 * slots
                    && let Some(one) = more(&instances, false).filter(|one| one.placement.size < board.memory_slots())
                {
                    *taken += usize::from(one.placement.size);
                    instances.push(Held::whole(one, pinned));
                }
            }
        }
        let mut hidden: Vec<_> = instances.iter().filter(|held| held.pinned).cloned().collect();
        for _ in 0..60 {
            if let Some(one) = more(&hidden, true) {
                hidden.push(Held::whole(one.clone(), false));
                hidden_count += 1;
                // Nineteen of twenty are asked for.
                if !hidden_count.is_multiple_of(20) {
                    demand.add(one.profile, 1);
                }
            }
        }
        GpuState {
            name: format!("gpu-{at}"),
            board,
            mode: Mode::Enabled,
            instances,
        }
    };
    let states: Vec<_> = (0..gpus).map(state).collect();
    (Fleet::new(states).expect("legal states"), demand)
}

/// GPUs in each of which two idle instances are in the way of a large one.
fn scattered(gpus: usize) -> Fleet {
    let board = Catalogue::builtin().board("H100-80GB").expect("built in");
    let small = || "1g.10gb".parse().expect("a profile");
    let instances = Geometry::new(board, [(small(), 1), (small(), 4)]).expect("they fit");
    let held = |instance: &Instance| Held::whole(instance.clone(), false);
    let gpu = |at| GpuState {
        name: format!("gpu-{at}"),
        board: Arc::clone(board),
        mode: Mode::Enabled,
        instances: instances.instances().iter().map(held).collect(),
    };
    Fleet::new((0..gpus).map(gpu).collect::<Vec<_>>()).expect("legal states")
}

fn benches(criterion: &mut Criterion) {
    for gpus in [100, 10_000] {
        decide(criterion, "first-fit", &FirstFit, gpus);
        decide(criterion, "prospect", &Prospect::default(), gpus);
    }
    let (fleet, demand) = fleet_of(1000);
    let requests: u32 = demand.iter().map(|(_, n)| n).sum();
    assert!((2_500..=3_500).contains(&requests), "{requests} requests");
    let mut group = criterion.benchmark_group("offline");
    group.sample_size(10);
    group.bench_function("a plan for 1000 GPUs", |bencher| {
        bencher.iter(|| plan(black_box(&fleet), black_box(&demand)).expect("the demand can be met"));
    });
    group.bench_function("a whole GPU freed by 2 moves on 100 GPUs", |bencher| {
        let fleet = scattered(100);
        bencher.iter(|| {
            let found = defragment(black_box(&fleet), 2).expect("a GPU can be emptied");
            assert_eq!(found.moves.len(), 2);
        });
    });
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
