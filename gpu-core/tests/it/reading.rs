use gpu_core::{
    Inventory, RecoveryAction,
    nvml::{Library, LibrarySearch},
};
use gpu_sim::{NodeSpec, Recovery};
use serde_json::json;

use crate::Simulated;

#[test]
fn an_h200_is_read_as_it_was_on_hardware() {
    let simulated = Simulated::exactly(&NodeSpec::new("h200-vm"));
    let inventory = simulated.library().inventory(&simulated.node.root()).unwrap();
    assert_eq!(inventory.problems, []);
    assert_eq!(inventory.generation, 1);
    let mut gpu = serde_json::to_value(&inventory.gpus[0]).unwrap();
    for varies in ["uuid", "serial"] {
        assert!(gpu.as_object_mut().unwrap().remove(varies).is_some(), "{varies}");
    }
    // What `gpuctl inventory -o json` printed on a machine with an H200, driver 580.159.04, on 2026-12-01.
    let measured = json!({
        "index": 0,
        "minor": 0,
        "name": "NVIDIA H200",
        "brand": "nvidia",
        "architecture": "hopper",
        "compute_capability": "9.0",
        "memory": { "total_bytes": 150_754_820_096_u64, "reserved_bytes": 644_939_776 },
        "pci": { "address": "0000:00:06.0", "id": "10de:2335", "subsystem_id": "10de:18bf" },
        "pcie_root": "pci0000:00",
        "addressing_mode": "none",
        "virtualization": "passthrough",
        "module_id": 8,
        "mig": { "enabled": false, "pending_enabled": false },
        "ecc": {
            "enabled": true, "pending_enabled": true,
            "uncorrected_since_load": 0, "uncorrected_in_life": 0,
        },
        "remapped_rows": { "correctable": 0, "uncorrectable": 0, "pending": false, "failed": false },
        "compute_mode": "default",
        "persistence_mode": true,
        "power": { "limit_mw": 700_000, "default_mw": 700_000, "min_mw": 200_000, "max_mw": 700_000 },
        "pcie_link": { "max_generation": 5, "max_width": 16 },
        "vbios_version": "96.00.A5.00.1A",
    });
    // What the board offers is in the tests of MIG.
    gpu["mig"].as_object_mut().unwrap().remove("profiles");
    gpu.as_object_mut()
        .unwrap()
        .remove("board_part_number")
        .expect("the board has a part number");
    assert_eq!(gpu, measured);

    let driver = serde_json::to_value(&inventory.driver).unwrap();
    let measured = json!({ "version": "580.159.04", "nvml_version": "13.580.159.04", "cuda_version": "13.0", "branch": "r582_49" });
    assert_eq!(driver, measured);
}

#[test]
fn gpus_come_in_pci_order_with_their_own_device_numbers_and_numa_nodes() {
    let simulated = Simulated::new(&NodeSpec::new("h100").permute_pci(true).seed(3));
    let inventory = simulated.library().inventory(&simulated.node.root()).unwrap();
    let addresses: Vec<_> = inventory.gpus.iter().map(|gpu| gpu.pci.address).collect();
    assert!(addresses.is_sorted(), "{addresses:?}");
    let indices: Vec<_> = inventory.gpus.iter().map(|gpu| gpu.index).collect();
    assert_eq!(indices, [0, 1, 2, 3, 4, 5, 6, 7]);
    let numa: Vec<_> = inventory.gpus.iter().map(|gpu| gpu.numa_node).collect();
    assert_eq!(numa, [0, 0, 0, 0, 1, 1, 1, 1].map(Some));
    let mut minors: Vec<_> = inventory.gpus.iter().map(|gpu| gpu.minor).collect();
    assert_ne!(minors, indices, "the minor numbers are permuted");
    minors.sort_unstable();
    assert_eq!(minors, indices);
}

#[test]
fn each_reading_has_the_next_generation_and_the_same_content() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let library = simulated.library();
    let first = library.inventory(&simulated.node.root()).unwrap();
    let second = library.inventory(&simulated.node.root()).unwrap();
    assert_eq!((first.generation, second.generation), (1, 2));
    assert_eq!(
        Inventory {
            generation: 1,
            ..second
        },
        first
    );
}

#[test]
fn an_inventory_survives_json() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let inventory = simulated.library().inventory(&simulated.node.root()).unwrap();
    let text = serde_json::to_string(&inventory).unwrap();
    assert_eq!(serde_json::from_str::<Inventory>(&text).unwrap(), inventory);
}

#[test]
fn the_library_is_found_beneath_a_driver_root() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let search = LibrarySearch {
        library: None,
        driver_root: Some(simulated.node.root()),
    };
    let library = Library::open(&search).unwrap();
    assert!(
        library.path().starts_with(simulated.node.root()),
        "{}",
        library.path().display()
    );
    assert_eq!(library.inventory(&simulated.node.root()).unwrap().gpus.len(), 1);
}

#[test]
fn two_nodes_in_one_process_do_not_mix() {
    let one = Simulated::new(&NodeSpec::new("h100").gpus(1).seed(1));
    let two = Simulated::new(&NodeSpec::new("h200").gpus(2).seed(2));
    let (first, second) = (one.library(), two.library());
    assert_eq!(
        first.inventory(&one.node.root()).unwrap().gpus[0].name,
        "NVIDIA H100 80GB HBM3"
    );
    assert_eq!(second.inventory(&two.node.root()).unwrap().gpus.len(), 2);
    assert_eq!(first.inventory(&one.node.root()).unwrap().gpus.len(), 1);
}

#[test]
fn what_the_driver_wants_done_is_read_until_it_is() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let library = simulated.library();
    let wanted = || {
        let inventory = library.inventory(&simulated.node.root()).unwrap();
        inventory.gpus.iter().map(|gpu| gpu.recovery_action).collect::<Vec<_>>()
    };
    assert_eq!(wanted(), [None, None]);
    simulated.node.want_recovery(1, Recovery::DrainAndReset).unwrap();
    assert_eq!(wanted(), [None, Some(RecoveryAction::DrainAndReset)]);
    simulated.node.reset(1).unwrap();
    assert_eq!(wanted(), [None, None]);
}
