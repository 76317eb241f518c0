//! Whatever is done in whatever order, by whoever is killed when.
#![expect(unsafe_code, reason = "calls the C ABI as C does")]

use std::{collections::BTreeSet, path::PathBuf, ptr::null_mut};

use gpu_sim::{Node, NodeSpec};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{TestCaseResult, TestRunner},
};

use super::shown;
use crate::{
    Simulated,
    driver::{Driver, INSUFFICIENT_RESOURCES, INVALID_ARGUMENT, call},
};

/// What a process of its own does in [`killed_at_any_moment_a_writer_leaves_a_readable_node`].
#[test]
#[ignore = "runs only as the child of another test"]
fn child_that_partitions_for_ever() {
    let library = std::env::var_os("MIG_TEST_LIBRARY")
        .map(PathBuf::from)
        .expect("the parent says which");
    let driver = Driver::load(&library);
    let gpu = driver.gpu(0);
    loop {
        let made = driver
            .create(gpu, 19, None)
            .and_then(|instance| Ok((instance, driver.create_compute(instance, 0)?)));
        if let Ok((instance, compute)) = made {
            call!(driver.lib, nvmlComputeInstanceDestroy, compute);
            call!(driver.lib, nvmlGpuInstanceDestroy, instance);
        } else {
            // What a killed predecessor left fills the GPU up.
            for (id, ..) in driver.instances(gpu) {
                let mut instance = null_mut();
                call!(driver.lib, nvmlDeviceGetGpuInstanceById, gpu, id, &raw mut instance);
                let mut compute = null_mut();
                call!(
                    driver.lib,
                    nvmlGpuInstanceGetComputeInstanceById,
                    instance,
                    0,
                    &raw mut compute
                );
                call!(driver.lib, nvmlComputeInstanceDestroy, compute);
                call!(driver.lib, nvmlGpuInstanceDestroy, instance);
            }
        }
    }
}

#[test]
fn killed_at_any_moment_a_writer_leaves_a_readable_node() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    node.node.set_mig_mode(0, true).unwrap();
    let driver = Driver::load(&node.node.library());
    let gpu = driver.gpu(0);
    for round in 0..12_u64 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "mig::child_that_partitions_for_ever", "--ignored"])
            .env("MIG_TEST_LIBRARY", node.node.library())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_micros(40_000 + round * 1_370));
        child.kill().unwrap();
        child.wait().unwrap();
        let opened = Node::open(node.node.folder()).unwrap();
        let told = opened.mig(0).unwrap();
        let seen = driver.instances(gpu);
        assert_eq!(
            told.iter().map(|instance| instance.id).collect::<Vec<_>>(),
            seen.iter().map(|it| it.0).collect::<Vec<_>>()
        );
        let files = told.iter().flat_map(|instance| {
            let compute = instance
                .devices
                .iter()
                .map(move |(id, ..)| format!("gi{}/ci{id}/access", instance.id));
            compute.chain([format!("gi{}/access", instance.id)])
        });
        assert_eq!(shown(&opened, 0).0, files.collect());
    }
}

/// A step of a sequence: what to make, or which of the instances there are to remove.
#[derive(Debug, Clone)]
enum Step {
    Create(usize, Option<u32>),
    Compute(usize, u32),
    Destroy(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..7_usize, prop::option::of(0..8_u32)).prop_map(|(profile, start)| Step::Create(profile, start)),
        2 => (0..8_usize, 0..5_u32).prop_map(|(at, profile)| Step::Compute(at, profile)),
        2 => (0..8_usize).prop_map(Step::Destroy),
    ];
    vec(step, 1..24)
}

/// Two libraries stand for two processes: each step is done through one of them in turn.
#[test]
fn whatever_is_created_and_destroyed_fits_and_two_processes_agree() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let other = format!("usr/lib/{}-linux-gnu/libnvidia-ml.so.1", std::env::consts::ARCH);
    let drivers = [node.node.library(), node.node.root().join(other)].map(|path| Driver::load(&path));
    TestRunner::new(ProptestConfig::with_cases(64))
        .run(&steps(), |steps| {
            node.node.reboot().unwrap();
            node.node.set_mig_mode(0, true).unwrap();
            go(&drivers, steps)
        })
        .unwrap();
}

fn go(drivers: &[Driver; 2], steps: Vec<Step>) -> TestCaseResult {
    let profiles = [19, 20, 15, 14, 9, 5, 0];
    let sizes = [1, 1, 2, 2, 4, 4, 8];
    for (at, step) in steps.into_iter().enumerate() {
        let driver = &drivers[at % 2];
        let gpu = driver.gpu(0);
        let before = driver.instances(gpu);
        let existing = |at: usize| {
            let id = before.get(at % before.len().max(1))?.0;
            let mut instance = null_mut();
            assert_eq!(
                call!(driver.lib, nvmlDeviceGetGpuInstanceById, gpu, id, &raw mut instance),
                0
            );
            Some(instance)
        };
        match step {
            Step::Create(profile, start) => {
                let made = driver.create(gpu, profiles[profile], start.map(|start| (start, sizes[profile])));
                let known = [INVALID_ARGUMENT, INSUFFICIENT_RESOURCES];
                prop_assert!(made.is_ok() || made.is_err_and(|code| known.contains(&code)));
                prop_assert_eq!(driver.instances(gpu).len(), before.len() + usize::from(made.is_ok()));
            }
            Step::Compute(at, profile) => {
                if let Some(instance) = existing(at) {
                    let _ = driver.create_compute(instance, profile);
                }
            }
            Step::Destroy(at) => {
                if let Some(instance) = existing(at) {
                    for id in 0..8 {
                        let mut compute = null_mut();
                        if call!(
                            driver.lib,
                            nvmlGpuInstanceGetComputeInstanceById,
                            instance,
                            id,
                            &raw mut compute
                        ) == 0
                        {
                            prop_assert_eq!(call!(driver.lib, nvmlComputeInstanceDestroy, compute), 0);
                        }
                    }
                    prop_assert_eq!(call!(driver.lib, nvmlGpuInstanceDestroy, instance), 0);
                }
            }
        }
        let seen = driver.instances(gpu);
        let mut taken = [false; 8];
        for (_, profile, start, size) in &seen {
            let kind = profiles
                .iter()
                .position(|id| id == profile)
                .expect("the profile is known");
            prop_assert_eq!(*size, sizes[kind]);
            for slot in *start..start + size {
                prop_assert!(!std::mem::replace(&mut taken[slot as usize], true), "{seen:?}");
            }
        }
        let with_media: usize = seen.iter().filter(|it| it.1 == 20).count();
        prop_assert!(with_media <= 1);
        let ids: BTreeSet<u32> = seen.iter().map(|it| it.0).collect();
        prop_assert_eq!(ids.len(), seen.len());
        let peer = &drivers[(at + 1) % 2];
        prop_assert_eq!(&peer.instances(peer.gpu(0)), &seen);
        let uuids = |driver: &Driver| -> Vec<String> {
            driver
                .mig_devices(driver.gpu(0))
                .iter()
                .map(|device| driver.uuid(*device))
                .collect()
        };
        prop_assert_eq!(uuids(driver), uuids(peer));
    }
    Ok(())
}
