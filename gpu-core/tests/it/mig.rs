//! GPUs that are divided into GPU instances.

use std::{
    ops::ControlFlow,
    sync::{Arc, mpsc},
    time::Duration,
};

use gpu_core::{
    Change, Gpu, Mig, MigUuid,
    nvml::{HealthEventKind, NodeEvent, WatchConfig, Watcher},
};
use gpu_sim::NodeSpec;

use crate::Simulated;

fn gpu(simulated: &Simulated, index: usize) -> Gpu {
    let inventory = simulated
        .library()
        .inventory(&simulated.node.root())
        .expect("the node is read");
    assert_eq!(inventory.problems, []);
    inventory.gpus[index].clone()
}

fn mig(simulated: &Simulated, index: usize) -> Mig {
    gpu(simulated, index).mig.expect("the board has MIG")
}

#[test]
fn an_h200_offers_what_it_does_on_hardware_also_while_the_mode_is_off() {
    let simulated = Simulated::new(&NodeSpec::new("h200-vm"));
    let mig = mig(&simulated, 0);
    assert!(!mig.enabled);
    let profiles: Vec<_> = mig
        .profiles
        .iter()
        .map(|profile| {
            let starts: Vec<_> = profile.placements.iter().map(|placement| placement.start).collect();
            let size = profile.placements[0].size;
            assert!(profile.placements.iter().all(|placement| placement.size == size));
            let name = profile.name.to_string();
            (
                name,
                profile.id,
                profile.memory_mib,
                profile.multiprocessors,
                profile.max_instances,
                size,
                starts,
            )
        })
        .collect();
    // Measured with NVML on an H200 of 141 GB, driver 580.159.04: by NVML's constant, which is not the id.
    let expected = [
        ("1g.18gb", 19, 16384, 16, 7, 1, vec![0, 1, 2, 3, 4, 5, 6]),
        ("2g.35gb", 14, 33280, 32, 3, 2, vec![0, 2, 4]),
        ("3g.71gb", 9, 71424, 60, 2, 4, vec![0, 4]),
        ("4g.71gb", 5, 71424, 64, 1, 4, vec![0]),
        ("7g.141gb", 0, 143_360, 132, 1, 8, vec![0]),
        ("1g.18gb+me", 20, 16384, 16, 1, 1, vec![0, 1, 2, 3, 4, 5, 6]),
        ("1g.35gb", 15, 33280, 26, 4, 2, vec![0, 2, 4, 6]),
    ];
    let expected =
        expected.map(|(name, id, mib, sm, max, size, starts)| (name.to_owned(), id, mib, sm, max, size, starts));
    assert_eq!(profiles, expected);
    let constants: Vec<_> = mig.profiles.iter().map(|profile| profile.constant).collect();
    assert_eq!(constants, [0, 1, 2, 3, 4, 7, 9]);
    assert_eq!(mig.gpu_instances, []);
    assert_eq!(mig.devices, []);
}

#[test]
fn instances_are_read_with_their_placements_and_devices_with_their_names() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(2));
    simulated.node.set_mig_mode(0, true).unwrap();
    let small = simulated.node.create_mig(0, "1g.10gb+me", Some(6)).unwrap();
    let large = simulated.node.create_mig(0, "3g.40gb", Some(0)).unwrap();
    let mig = mig(&simulated, 0);
    assert!(mig.enabled && mig.pending_enabled);
    let instances: Vec<_> = mig
        .gpu_instances
        .iter()
        .map(|instance| {
            let name = instance.profile.as_ref().map(ToString::to_string);
            (
                instance.id,
                name,
                instance.placement.start,
                instance.placement.size,
                instance.compute_instances.len(),
            )
        })
        .collect();
    let named = |name: &str| Some(name.to_owned());
    assert_eq!(
        instances,
        [
            (large.id, named("3g.40gb"), 0, 4, 1),
            (small.id, named("1g.10gb+me"), 6, 1, 1)
        ]
    );

    let mut devices: Vec<_> = mig
        .devices
        .iter()
        .map(|device| {
            let name = device.profile.as_ref().map(ToString::to_string).unwrap_or_default();
            (
                device.gpu_instance,
                device.compute_instance,
                name,
                device.uuid.to_string(),
            )
        })
        .collect();
    devices.sort();
    let mut expected: Vec<_> = [small, large]
        .iter()
        .flat_map(|made| {
            made.devices
                .iter()
                .map(|(compute, name, uuid)| (made.id, *compute, name.clone(), uuid.clone()))
        })
        .collect();
    expected.sort();
    assert_eq!(devices, expected);
    let attributes = mig.devices.iter().filter_map(|device| device.attributes);
    let mut sizes: Vec<_> = attributes
        .map(|attributes| (attributes.gpu_slices, attributes.memory_mib))
        .collect();
    sizes.sort_unstable();
    assert_eq!(sizes.len(), 2);
    assert!(
        sizes[0].0 == 1 && sizes[1].0 == 3 && sizes[0].1 < sizes[1].1,
        "{sizes:?}"
    );

    // The other GPU is not touched, and a GPU finds its MIG device.
    assert!(!gpu(&simulated, 1).mig_enabled());
    let inventory = simulated.library().inventory(&simulated.node.root()).unwrap();
    let (parent, found) = inventory.mig_device(&mig.devices[0].uuid).unwrap();
    assert_eq!((parent.index, found), (0, &mig.devices[0]));
    let text = serde_json::to_string(&inventory).unwrap();
    assert_eq!(serde_json::from_str::<gpu_core::Inventory>(&text).unwrap(), inventory);
}

#[test]
fn an_older_driver_that_lacks_calls_and_versions_is_read_as_far_as_it_goes() {
    for driver in ["470", "535", "550", "580", "610"] {
        let simulated = Simulated::new(&NodeSpec::new("h100").gpus(1).driver(driver));
        simulated.node.set_mig_mode(0, true).unwrap();
        simulated.node.create_mig(0, "1g.10gb", Some(2)).unwrap();
        let mig = mig(&simulated, 0);
        let [device] = mig.devices.as_slice() else {
            panic!("{driver}: {:?}", mig.devices)
        };
        assert_eq!(device.profile.as_ref().unwrap().to_string(), "1g.10gb", "{driver}");
        assert_eq!(mig.gpu_instances[0].placement.start, 2, "{driver}");
        assert_eq!(mig.profiles[0].placements.len(), 7, "{driver}");
    }
}

#[test]
fn a_layout_that_changes_is_told_with_the_devices_that_came_and_went() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(1));
    simulated.node.set_mig_mode(0, true).unwrap();
    let library = Arc::new(simulated.library());
    let inventory = library.inventory(&simulated.node.root()).unwrap();
    // The driver's event tells at once: no look is due within this test.
    let config = WatchConfig {
        host_root: simulated.node.root(),
        interval: Duration::from_mins(10),
        ..WatchConfig::default()
    };
    let (sender, events) = mpsc::channel();
    let _watcher = Watcher::start(library, inventory, config, move |event| {
        let _ = sender.send(event);
        ControlFlow::Continue(())
    })
    .unwrap();
    let next = || loop {
        match events.recv_timeout(Duration::from_secs(10)).unwrap() {
            NodeEvent::Changed { changes, .. } => return changes,
            NodeEvent::Health(event) => assert_eq!(event.kind, HealthEventKind::MigConfigChanged),
            other => panic!("{other:?}"),
        }
    };
    let made = simulated.node.create_mig(0, "2g.20gb", None).unwrap();
    let uuid = made.devices[0].2.as_str();
    let changes = next();
    assert!(
        matches!(&changes[..], [Change::MigLayout { appeared, vanished, .. }]
            if appeared.iter().map(MigUuid::as_str).eq([uuid]) && vanished.is_empty()),
        "{changes:?}"
    );
    simulated.node.destroy_mig(0, made.id).unwrap();
    let changes = next();
    assert!(
        matches!(&changes[..], [Change::MigLayout { appeared, vanished, .. }]
            if vanished.iter().map(MigUuid::as_str).eq([uuid]) && appeared.is_empty()),
        "{changes:?}"
    );
}
