use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{Placement, mig::layout::Layout};

const GPU: &str = "GPU-00000000-0000-0000-0000-000000000000";

/// An H100 of 80 GB with a 1g.10gb at 4, number 11, and its one compute instance.
fn inventory(enabled: bool) -> Inventory {
    let profile = |name: &str, id: u32, slices: u32, size: u32, starts: &[u32], max: u32| {
        let placements: Vec<_> = starts
            .iter()
            .map(|start| json!({ "start": start, "size": size }))
            .collect();
        json!({
            "name": name, "id": id, "constant": 0, "slices": slices, "max_instances": max, "memory_mib": 1, "multiprocessors": 1,
            "engines": { "copy_engines": 1, "decoders": 1, "encoders": 0, "jpeg_engines": 0, "ofa_engines": 0 }, "p2p": false,
            "placements": placements,
        })
    };
    let profiles = [
        profile("1g.10gb", 19, 1, 1, &[0, 1, 2, 3, 4, 5, 6], 7),
        profile("1g.10gb+me", 20, 1, 1, &[0, 1, 2, 3, 4, 5, 6], 1),
        profile("3g.40gb", 9, 3, 4, &[0, 4], 2),
    ];
    let instances = [json!({
        "id": 11, "profile_id": 19, "profile": "1g.10gb", "placement": { "start": 4, "size": 1 },
        "compute_instances": [{ "id": 0, "profile_id": 0, "placement": { "start": 0, "size": 1 } }],
    })];
    serde_json::from_value(json!({ "gpus": [{
        "index": 0, "minor": 0, "uuid": GPU, "name": "NVIDIA H100", "pci": { "address": "0000:1a:00.0", "id": "10de:2330" },
        "mig": {
            "enabled": enabled, "pending_enabled": enabled, "profiles": profiles,
            "gpu_instances": if enabled { &instances[..] } else { &[] },
        },
    }] }))
    .unwrap()
}

fn create(profile: &str, start: u32, size: u32) -> Step {
    Step::CreateGpuInstance {
        gpu: GPU.parse().unwrap(),
        profile: profile.parse().unwrap(),
        placement: Placement { start, size },
    }
}

fn compute(at: (u32, u32), slices: u32, start: Option<u32>) -> Step {
    Step::CreateComputeInstance {
        gpu: GPU.parse().unwrap(),
        gpu_instance_at: Placement {
            start: at.0,
            size: at.1,
        },
        slices,
        start,
    }
}

fn destroy(gpu_instance: u32) -> Step {
    Step::DestroyGpuInstance {
        gpu: GPU.parse().unwrap(),
        gpu_instance,
    }
}

fn destroy_compute(gpu_instance: u32) -> Step {
    Step::DestroyComputeInstance {
        gpu: GPU.parse().unwrap(),
        gpu_instance,
        compute_instance: 0,
    }
}

fn mode(enabled: bool) -> Step {
    Step::SetMode {
        gpu: GPU.parse().unwrap(),
        enabled,
    }
}

/// `Ok` for a plan that can be taken, else the step's number from 0 and the beginning of the reason.
#[track_caller]
fn check(enabled: bool, steps: &[Step], expected: Result<(), (usize, &str)>) {
    let plan = Plan { steps: steps.to_vec() };
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    match (plan.check(&inventory(enabled)), expected) {
        (Ok(checked), Ok(())) => assert_eq!(checked.steps(), steps),
        (Err(error), Err((number, reason))) => {
            assert_eq!(error.number, number, "{error}");
            assert!(error.reason.to_string().starts_with(reason), "{error}");
        }
        (answer, _) => panic!("{answer:?}"),
    }
}

#[test]
fn instances_are_made_where_there_is_room() {
    check(true, &[create("3g.40gb", 0, 4), compute((0, 4), 3, None)], Ok(()));
    check(
        true,
        &[create("3g.40gb", 4, 4)],
        Err((0, "the slices from 4 to 4 are taken")),
    );
    check(
        true,
        &[create("3g.40gb", 2, 4)],
        Err((0, "it cannot lie there; it can at 0, 4")),
    );
    check(
        true,
        &[create("1g.5gb", 0, 1)],
        Err((0, "the GPU has no such profile; it has 1g.10gb, 1g.10gb+me")),
    );
    let twice = [create("1g.10gb+me", 0, 1), create("1g.10gb+me", 1, 1)];
    check(true, &twice, Err((1, "there can be no more than 1")));
    check(false, &[create("1g.10gb", 0, 1)], Err((0, "MIG mode is off")));
    check(false, &[mode(true), create("1g.10gb", 0, 1)], Ok(()));
}

#[test]
fn room_is_made_from_the_inside_out() {
    check(
        true,
        &[destroy_compute(11), destroy(11), create("3g.40gb", 4, 4)],
        Ok(()),
    );
    check(
        true,
        &[destroy(11)],
        Err((0, "the GPU instance has compute instances left")),
    );
    check(true, &[destroy(7)], Err((0, "there is no such instance")));
    check(
        true,
        &[destroy_compute(11), destroy_compute(11)],
        Err((1, "there is no such instance")),
    );
    check(
        true,
        &[destroy_compute(11), mode(false)],
        Err((1, "there are GPU instances left")),
    );
    check(true, &[destroy_compute(11), destroy(11), mode(false)], Ok(()));
}

#[test]
fn compute_instances_share_what_their_gpu_instance_has() {
    let made = create("3g.40gb", 0, 4);
    let check_compute = |instances: &[Step], expected| {
        let steps = [std::slice::from_ref(&made), instances].concat();
        check(true, &steps, expected);
    };
    let at = (0, 4);
    check_compute(&[compute(at, 1, Some(0)), compute(at, 2, Some(1))], Ok(()));
    check_compute(
        &[compute(at, 1, Some(1)), compute(at, 2, Some(1))],
        Err((2, "the slices from 1 to 1 are taken")),
    );
    check_compute(
        &[compute(at, 2, None), compute(at, 2, None)],
        Err((2, "the GPU instance has 1 compute slices left")),
    );
    check_compute(
        &[compute(at, 1, Some(3))],
        Err((1, "the GPU instance has 3 compute slices left")),
    );
    check_compute(
        &[compute(at, 0, None)],
        Err((1, "the GPU instance has 3 compute slices left")),
    );
    check_compute(&[compute((4, 4), 1, None)], Err((1, "there is no such instance")));
}

fn any_step() -> impl Strategy<Value = Step> {
    let name = prop::sample::select(vec![("1g.10gb", 1), ("1g.10gb+me", 1), ("3g.40gb", 4), ("7g.80gb", 8)]);
    prop_oneof![
        (name, 0u32..9).prop_map(|((name, size), start)| create(name, start, size)),
        (
            0u32..9,
            prop::sample::select(vec![1u32, 4]),
            0u32..4,
            prop::option::of(0u32..4)
        )
            .prop_map(|(start, size, slices, from)| compute((start, size), slices, from)),
        prop::sample::select(vec![11, u32::MAX]).prop_map(destroy),
        Just(destroy_compute(11)),
        any::<bool>().prop_map(mode),
    ]
}

proptest! {
    #[test]
    fn whatever_the_steps_instances_on_paper_never_overlap(steps in prop::collection::vec(any_step(), 0..40)) {
        let inventory = inventory(true);
        let mig = inventory.gpus[0].mig.as_ref().unwrap();
        let mut layout = Layout::of(mig);
        for step in &steps {
            let _ = layout.take(mig, step);
            for (number, one) in layout.instances.iter().enumerate() {
                let others = &layout.instances[number + 1..];
                prop_assert!(others.iter().all(|other| !other.placement.overlaps(one.placement)));
                let slices: u32 = one.compute_instances.iter().map(|instance| instance.placement.size).sum();
                prop_assert!(slices <= mig.profile(one.profile_id).unwrap().slices);
            }
            prop_assert!(layout.enabled || layout.instances.is_empty());
        }
    }
}
