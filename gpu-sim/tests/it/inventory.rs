use gpu_sim::NodeSpec;
use nvml_wrapper::{
    bitmasks::event::EventTypes,
    enum_wrappers::device::{Brand, Clock, TemperatureSensor, TopologyLevel},
    enums::device::DeviceArchitecture,
    error::NvmlError,
    struct_wrappers::device::MemoryInfo,
};

use crate::Simulated;

/// Every number here was read from a real H200 through NVML, driver 580.159.04.
#[test]
fn an_h200_answers_what_was_measured() {
    let node = Simulated::new(&NodeSpec::new("h200-vm"));
    let nvml = node.nvml();
    assert_eq!(nvml.sys_driver_version().unwrap(), "580.159.04");
    assert_eq!(nvml.sys_nvml_version().unwrap(), "13.580.159.04");
    assert_eq!(nvml.sys_cuda_driver_version().unwrap(), 13000);
    assert_eq!(nvml.device_count().unwrap(), 1);

    let gpu = nvml.device_by_index(0).unwrap();
    assert_eq!(gpu.name().unwrap(), "NVIDIA H200");
    assert_eq!(gpu.index().unwrap(), 0);
    assert_eq!(gpu.minor_number().unwrap(), 0);
    assert_eq!(gpu.brand().unwrap(), Brand::Nvidia);
    assert_eq!(gpu.architecture().unwrap(), DeviceArchitecture::Hopper);
    let capability = gpu.cuda_compute_capability().unwrap();
    assert_eq!((capability.major, capability.minor), (9, 0));
    let memory = MemoryInfo {
        free: 150_109_880_320,
        reserved: 644_939_776,
        total: 150_754_820_096,
        used: 0,
        version: 33_554_472,
    };
    assert_eq!(gpu.memory_info().unwrap(), memory);
    let pci = gpu.pci_info().unwrap();
    assert_eq!(pci.bus_id, "00000000:00:06.0");
    assert_eq!((pci.domain, pci.bus, pci.device), (0, 0, 6));
    assert_eq!(
        (pci.pci_device_id, pci.pci_sub_system_id),
        (0x2335_10de, Some(0x18bf_10de))
    );
    let mig = gpu.mig_mode().unwrap();
    assert_eq!((mig.current, mig.pending), (0, 0));
    assert_eq!(gpu.mig_device_count().unwrap(), 0);
    assert_eq!(gpu.num_cores().unwrap(), 16896);
    assert_eq!(gpu.memory_bus_width().unwrap(), 6016);
    assert_eq!(gpu.vbios_version().unwrap(), "96.00.A5.00.1A");
    assert_eq!(gpu.board_part_number().unwrap(), "692-2G520-0000-001");
    assert_eq!(gpu.board_id().unwrap(), 6);
    assert_eq!(gpu.irq_num().unwrap(), 41);
    assert_eq!(gpu.max_pcie_link_gen().unwrap(), 5);
    assert_eq!(gpu.current_pcie_link_gen().unwrap(), 5);
    assert_eq!(gpu.max_pcie_link_width().unwrap(), 16);
    assert_eq!(gpu.current_pcie_link_width().unwrap(), 16);
    assert_eq!(gpu.power_management_limit().unwrap(), 700_000);
    assert_eq!(gpu.power_usage().unwrap(), 108_873);
    let limits = gpu.power_management_limit_constraints().unwrap();
    assert_eq!((limits.min_limit, limits.max_limit), (200_000, 700_000));
    assert_eq!(gpu.temperature(TemperatureSensor::Gpu).unwrap(), 41);
    assert_eq!(gpu.clock_info(Clock::SM).unwrap(), 345);
    assert_eq!(gpu.max_clock_info(Clock::Memory).unwrap(), 3201);
    // The wrapper drops the bits it does not know.
    assert_eq!(
        gpu.supported_event_types().unwrap(),
        EventTypes::from_bits_truncate(65439)
    );
    assert_eq!(gpu.running_compute_processes().unwrap(), []);
    assert!(gpu.is_ecc_enabled().unwrap().currently_enabled);
    assert!(matches!(gpu.fan_speed(0), Err(NvmlError::NotSupported)));
    assert!(matches!(gpu.numa_node_id(), Err(NvmlError::NotSupported)));
    assert!(matches!(gpu.attributes(), Err(NvmlError::NotSupported)));
}

#[test]
fn eight_h100_are_linked_by_nvswitch_and_lie_in_two_numa_nodes() {
    let node = Simulated::new(&NodeSpec::new("h100"));
    let nvml = node.nvml();
    assert_eq!(nvml.device_count().unwrap(), 8);
    assert_eq!(nvml.sys_driver_version().unwrap(), "550.163.01");
    assert_eq!(nvml.sys_cuda_driver_version().unwrap(), 12040);
    let gpu = |index| nvml.device_by_index(index).unwrap();
    assert_eq!(gpu(0).name().unwrap(), "NVIDIA H100 80GB HBM3");
    assert_eq!(gpu(3).pci_info().unwrap().bus_id, "00000000:4B:00.0");

    let ancestor = |a, b| gpu(a).topology_common_ancestor(gpu(b)).unwrap();
    assert_eq!(ancestor(0, 3), TopologyLevel::Node);
    assert_eq!(ancestor(0, 4), TopologyLevel::System);

    assert!(gpu(0).link_wrapper_for(17).is_active().unwrap());
    assert_eq!(
        gpu(0).link_wrapper_for(1).remote_pci_info().unwrap().bus_id,
        "00000000:06:00.0"
    );
    assert!(matches!(
        gpu(0).link_wrapper_for(18).is_active(),
        Err(NvmlError::InvalidArg)
    ));
}
