//! Boards and node templates that differ in kind.

use gpu_sim::{Load, NodeSpec};
use nvml_wrapper::{
    enum_wrappers::device::{EccCounter, MemoryError, TopologyLevel},
    error::NvmlError,
};

use crate::Simulated;

#[test]
fn the_memory_of_a_gb10_is_not_reported() {
    let node = Simulated::new(&NodeSpec::new("gb10"));
    let nvml = node.nvml();
    let gpu = nvml.device_by_index(0).unwrap();
    assert_eq!(gpu.name().unwrap(), "NVIDIA GB10");
    assert!(matches!(gpu.memory_info(), Err(NvmlError::NotSupported)));
    assert!(matches!(gpu.bar1_memory_info(), Err(NvmlError::NotSupported)));
    assert!(matches!(gpu.is_ecc_enabled(), Err(NvmlError::NotSupported)));
    let errors = gpu.total_ecc_errors(MemoryError::Corrected, EccCounter::Volatile);
    assert!(matches!(errors, Err(NvmlError::NotSupported)));
    assert!(matches!(gpu.mig_mode(), Err(NvmlError::NotSupported)));
}

#[test]
fn bridged_pairs_are_linked_to_each_other_alone() {
    let node = Simulated::new(&NodeSpec::new("pcie-pairs"));
    let nvml = node.nvml();
    let gpu = |index| nvml.device_by_index(index).unwrap();
    let level = |a, b| gpu(a).topology_common_ancestor(gpu(b)).unwrap();
    assert_eq!(level(0, 1), TopologyLevel::Single);
    assert_eq!(level(0, 2), TopologyLevel::Node);
    assert_eq!(level(0, 4), TopologyLevel::System);
    let remote = |index| gpu(index).link_wrapper_for(0).remote_pci_info().unwrap().bus_id;
    assert_eq!(
        (remote(2), remote(3)),
        (gpu(3).pci_info().unwrap().bus_id, gpu(2).pci_info().unwrap().bus_id)
    );
}

#[test]
fn the_gpus_of_a_card_share_its_serial_number() {
    let node = Simulated::new(&NodeSpec::new("a16"));
    let nvml = node.nvml();
    let gpu = |index| nvml.device_by_index(index).unwrap();
    assert_eq!(nvml.device_count().unwrap(), 8);
    assert_eq!(gpu(0).serial().unwrap(), gpu(3).serial().unwrap());
    assert_ne!(gpu(0).serial().unwrap(), gpu(4).serial().unwrap());
    assert_ne!(gpu(0).uuid().unwrap(), gpu(3).uuid().unwrap());
    assert!(gpu(0).is_multi_gpu_board().unwrap());
    assert_eq!(
        (gpu(1).board_id().unwrap(), gpu(5).board_id().unwrap()),
        (0x1900, 0x9900)
    );
}

#[test]
fn a_mixed_node_has_boards_with_mig_and_without() {
    let node = Simulated::new(&NodeSpec::new("mixed"));
    let nvml = node.nvml();
    let names: Vec<_> = (0..4)
        .map(|index| nvml.device_by_index(index).unwrap().name().unwrap())
        .collect();
    assert_eq!(names, ["NVIDIA A100 80GB PCIe", "NVIDIA A30", "NVIDIA L4", "NVIDIA T4"]);
    assert!(node.node.set_mig_mode(1, true).unwrap());
    assert_eq!(node.node.create_mig(1, "2g.12gb", None).unwrap().id, 1);
    let message = node.node.set_mig_mode(2, true).unwrap_err().to_string();
    assert_eq!(message, "cannot partition GPU 2 (L4): Not Supported");
}

/// As the driver documents it: an idle board on bare metal is reset by the driver itself.
#[test]
fn ampere_changes_its_mode_by_a_reset_and_keeps_it_over_a_reboot() {
    let node = Simulated::new(&NodeSpec::new("a100").gpus(2));
    node.node.load(1, Load::default()).unwrap();
    assert!(node.node.set_mig_mode(0, true).unwrap(), "idle: at once");
    assert!(!node.node.set_mig_mode(1, true).unwrap(), "in use: pending");
    assert_eq!(node.node.mig_mode(1).unwrap(), (false, true));
    assert!(node.node.create_mig(1, "1g.5gb", None).is_err());
    node.node.create_mig(0, "1g.5gb", None).unwrap();
    node.node.reboot().unwrap();
    assert_eq!(node.node.mig_mode(0).unwrap(), (true, true));
    assert_eq!(node.node.mig_mode(1).unwrap(), (true, true));
    assert_eq!(node.node.mig(0).unwrap(), []);

    let guest = Simulated::new(&NodeSpec::new("a100-vm"));
    assert!(!guest.node.set_mig_mode(0, true).unwrap(), "a guest cannot reset it");
    guest.node.reset(0).unwrap();
    assert_eq!(guest.node.mig_mode(0).unwrap(), (true, true));
}

#[test]
fn a_compute_tray_is_in_a_fabric_whose_switches_are_elsewhere() {
    let node = Simulated::new(&NodeSpec::new("gb200-nvl72"));
    let nvml = node.nvml();
    assert_eq!(nvml.device_count().unwrap(), 4);
    let gpu = nvml.device_by_index(0).unwrap();
    assert_eq!(gpu.pci_info().unwrap().bus_id, "00000008:01:00.0");
    assert!(gpu.link_wrapper_for(0).is_active().unwrap());
    assert!(matches!(
        gpu.link_wrapper_for(0).remote_pci_info(),
        Err(NvmlError::NotSupported)
    ));
    assert_eq!(node.node.file().fabric.as_ref().unwrap().clique, 32766);
}
