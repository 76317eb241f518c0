//! Whatever is made and removed in whatever order, on whatever board.
#![expect(unsafe_code, reason = "calls the C ABI as C does")]

use std::{collections::BTreeSet, ptr::null_mut};

use gpu_sim::{Node, NodeSpec};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlGpuInstance_t, nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t,
};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{TestCaseResult, TestRunner},
};

use crate::{
    Simulated,
    driver::{Driver, INSUFFICIENT_RESOURCES, INVALID_ARGUMENT, NOT_SUPPORTED, call, zeroed},
};

/// A step of a sequence: what to make, or which of the instances there are to remove.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Which of the board's profiles, and at which of its places.
    Create(usize, Option<usize>),
    Compute(usize, u32),
    Destroy(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..16_usize, prop::option::of(0..8_usize)).prop_map(|(profile, place)| Step::Create(profile, place)),
        2 => (0..8_usize, 0..5_u32).prop_map(|(at, profile)| Step::Compute(at, profile)),
        2 => (0..8_usize).prop_map(Step::Destroy),
    ];
    vec(step, 1..24)
}

/// A board's profile, as NVML tells it.
struct Profile {
    info: nvmlGpuInstanceProfileInfo_t,
    places: Vec<(u32, u32)>,
}

fn profiles(driver: &Driver) -> Vec<Profile> {
    let gpu = driver.gpu(0);
    let of_constant = |constant| {
        let info = driver.profile(gpu, constant).ok()?;
        let mut list: [nvmlGpuInstancePlacement_t; 16] = [zeroed(); 16];
        let (out, mut count) = (list.as_mut_ptr(), 16);
        let code = call!(
            driver.lib,
            nvmlDeviceGetGpuInstancePossiblePlacements_v2,
            gpu,
            info.id,
            out,
            &raw mut count
        );
        assert_eq!(code, 0);
        let places = list[..count as usize].iter().map(|place| (place.start, place.size));
        Some(Profile {
            info,
            places: places.collect(),
        })
    };
    (0..18).filter_map(of_constant).collect()
}

/// Copy engines are shared in part, so only media engines are counted.
fn engines(info: &nvmlGpuInstanceProfileInfo_t) -> [u32; 4] {
    [info.decoderCount, info.encoderCount, info.jpegCount, info.ofaCount]
}

/// Two libraries stand for two processes: each step is done through one of them in turn. A third is this one, which reads the
/// state by itself.
#[test]
fn whatever_is_created_and_destroyed_fits_and_all_processes_agree() {
    for board in [
        "a30",
        "a100",
        "dgx-a100",
        "h100-pcie",
        "h100",
        "hgx-h100",
        "pcie-pairs",
        "gh200",
        "gh200-144",
        "h200",
        "hgx-b200",
        "gb200-nvl72",
        "hgx-b300",
        "gb300-nvl72",
        "rtx-pro-6000",
    ] {
        let node = Simulated::new(&NodeSpec::new(board).gpus(1).driver("610"));
        let other = format!("usr/lib/{}-linux-gnu/libnvidia-ml.so.1", std::env::consts::ARCH);
        let drivers = [node.node.library(), node.node.root().join(other)].map(|path| Driver::load(&path));
        let profiles = profiles(&drivers[0]);
        assert!(profiles.len() > 3, "{board}");
        TestRunner::new(ProptestConfig::with_cases(6))
            .run(&steps(), |steps| {
                node.node.reboot().unwrap();
                node.node.set_mig_mode(0, true).unwrap();
                go(&node.node, &drivers, &profiles, steps)
            })
            .unwrap_or_else(|error| panic!("{board}: {error}"));
    }
}

fn go(node: &Node, drivers: &[Driver; 2], profiles: &[Profile], steps: Vec<Step>) -> TestCaseResult {
    for (at, step) in steps.into_iter().enumerate() {
        let (driver, peer) = (&drivers[at % 2], &drivers[(at + 1) % 2]);
        take(driver, profiles, step)?;
        let seen = driver.instances(driver.gpu(0));
        check_placements(profiles, &seen)?;
        prop_assert_eq!(&peer.instances(peer.gpu(0)), &seen);
        let uuids = |driver: &Driver| -> Vec<String> {
            let devices = driver.mig_devices(driver.gpu(0));
            devices.iter().map(|device| driver.uuid(*device)).collect()
        };
        let told = node.mig(0).expect("the state is read");
        let ids: Vec<u32> = told.iter().map(|instance| instance.id).collect();
        prop_assert_eq!(ids, seen.iter().map(|it| it.0).collect::<Vec<_>>());
        let devices = told.into_iter().flat_map(|instance| instance.devices);
        let told: Vec<String> = devices.map(|(_, _, uuid)| uuid).collect();
        prop_assert_eq!(&uuids(driver), &told);
        prop_assert_eq!(&uuids(peer), &told);
    }
    Ok(())
}

fn take(driver: &Driver, profiles: &[Profile], step: Step) -> TestCaseResult {
    let gpu = driver.gpu(0);
    let before = driver.instances(gpu);
    let existing = |at: usize| Some(by_id(driver, gpu, before.get(at % before.len().max(1))?.0));
    match step {
        Step::Create(profile, place) => {
            let profile = &profiles[profile % profiles.len()];
            let place = place.map(|place| profile.places[place % profile.places.len()]);
            let made = driver.create(gpu, profile.info.id, place);
            prop_assert!(made.is_ok() || made == Err(INSUFFICIENT_RESOURCES), "{:?}", made);
            prop_assert_eq!(driver.instances(gpu).len(), before.len() + usize::from(made.is_ok()));
        }
        Step::Compute(at, profile) => {
            if let Some(instance) = existing(at) {
                let made = driver.create_compute(instance, profile);
                let refusals = [INVALID_ARGUMENT, NOT_SUPPORTED, INSUFFICIENT_RESOURCES];
                prop_assert!(
                    made.is_ok() || made.is_err_and(|code| refusals.contains(&code)),
                    "{made:?}"
                );
            }
        }
        Step::Destroy(at) => {
            if let Some(instance) = existing(at) {
                for id in 0..8 {
                    let mut compute = null_mut();
                    let out = &raw mut compute;
                    if call!(driver.lib, nvmlGpuInstanceGetComputeInstanceById, instance, id, out) == 0 {
                        prop_assert_eq!(call!(driver.lib, nvmlComputeInstanceDestroy, compute), 0);
                    }
                }
                prop_assert_eq!(call!(driver.lib, nvmlGpuInstanceDestroy, instance), 0);
            }
        }
    }
    Ok(())
}

fn by_id(driver: &Driver, gpu: nvmlDevice_t, id: u32) -> nvmlGpuInstance_t {
    let mut instance = null_mut();
    assert_eq!(
        call!(driver.lib, nvmlDeviceGetGpuInstanceById, gpu, id, &raw mut instance),
        0
    );
    instance
}

/// Each instance, as (id, profile id, start, size), is at a place of its profile, none shares a slot or an id with another, and
/// neither the caps of profiles nor the media engines of the board are exceeded.
fn check_placements(profiles: &[Profile], seen: &[(u32, u32, u32, u32)]) -> TestCaseResult {
    let profile_of = |id: u32| profiles.iter().find(|profile| profile.info.id == id);
    let mut taken = [false; 16];
    let mut used = [0; 4];
    for (_, id, start, size) in seen {
        let profile = profile_of(*id).expect("an instance is of a profile of the board");
        prop_assert!(profile.places.contains(&(*start, *size)), "{seen:?}");
        for slot in *start..start + size {
            prop_assert!(!std::mem::replace(&mut taken[slot as usize], true), "{seen:?}");
        }
        for (used, more) in used.iter_mut().zip(engines(&profile.info)) {
            *used += more;
        }
    }
    for profile in profiles {
        let count = seen.iter().filter(|instance| instance.1 == profile.info.id).count();
        prop_assert!(count <= profile.info.instanceCount as usize, "{seen:?}");
    }
    for (at, used) in used.into_iter().enumerate() {
        let whole = profiles.iter().map(|profile| engines(&profile.info)[at]).max();
        prop_assert!(Some(used) <= whole, "engines {used:?} of {whole:?}: {seen:?}");
    }
    let ids: BTreeSet<u32> = seen.iter().map(|it| it.0).collect();
    prop_assert_eq!(ids.len(), seen.len());
    Ok(())
}
