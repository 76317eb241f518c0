//! A GPU from its name to what runs on it.

use nvml_wrapper::{
    Device,
    enum_wrappers::device::{Brand, GpuVirtualizationMode, PcieUtilCounter},
    enums::device::{DeviceArchitecture, UsedGpuMemory},
};

use super::{mig, readings};
use crate::{
    PciAddress,
    smi::{
        query::{compute_mode, enabled, mebibytes, mig_mode, performance_state},
        raw,
        table::program,
        xml::{Element, absent, group, value},
    },
};

/// All elements, in order.
pub(super) fn describe(gpu: &Device<'_>) -> Vec<Element> {
    let mut elements = identity(gpu);
    elements.extend(versions_and_modes(gpu));
    elements.push(pci(gpu));
    elements.extend(readings::describe(gpu));
    elements.extend([
        group("processes", processes(gpu)),
        group("accounted_processes", []),
        group("capabilities", absent(["egm"])),
    ]);
    elements
}

pub(super) fn yes(yes: bool) -> &'static str {
    if yes { "Yes" } else { "No" }
}

pub(super) fn mib(bytes: u64) -> String {
    format!("{} MiB", mebibytes(bytes))
}

fn identity(gpu: &Device<'_>) -> Vec<Element> {
    let raw = raw::Gpu::of(gpu);
    let addressing = |mode| match mode {
        0 => "None",
        1 => "HMM",
        2 => "ATS",
        _ => "Unknown",
    };
    let mode = gpu.mig_mode().ok();
    vec![
        value("product_name", gpu.name().ok()),
        value("product_brand", gpu.brand().ok().map(brand)),
        value(
            "product_architecture",
            gpu.architecture().ok().as_ref().map(architecture),
        ),
        value("display_mode", Some("Requested functionality has been deprecated")),
        value("display_attached", raw.is_display_attached().map(yes)),
        value("display_active", gpu.is_display_active().ok().map(enabled)),
        value("persistence_mode", gpu.is_in_persistent_mode().ok().map(enabled)),
        value("addressing_mode", raw.addressing_mode().map(addressing)),
        group(
            "mig_mode",
            [
                value("current_mig", mode.as_ref().map(|mode| mig_mode(mode.current))),
                value("pending_mig", mode.as_ref().map(|mode| mig_mode(mode.pending))),
            ],
        ),
        mig::devices(gpu),
        value("accounting_mode", gpu.is_accounting_enabled().ok().map(enabled)),
        value("accounting_mode_buffer_size", gpu.accounting_buffer_size().ok()),
        group("driver_model", absent(["current_dm", "pending_dm"])),
        value("serial", gpu.serial().ok()),
        value("uuid", gpu.uuid().ok()),
        value("pdi", raw.pdi().map(|pdi| format!("{pdi:#x}"))),
        value("minor_number", gpu.minor_number().ok()),
        value("vbios_version", gpu.vbios_version().ok()),
        value("multigpu_board", gpu.is_multi_gpu_board().ok().map(yes)),
        value("board_id", gpu.board_id().ok().map(|id| format!("{id:#x}"))),
        value("board_part_number", gpu.board_part_number().ok()),
    ]
}

fn versions_and_modes(gpu: &Device<'_>) -> Vec<Element> {
    let raw = raw::Gpu::of(gpu);
    let mut elements = absent(["gpu_part_number", "gpu_fru_part_number"]).to_vec();
    let mut platform = absent([
        "chassis_serial_number",
        "slot_number",
        "tray_index",
        "host_id",
        "peer_type",
    ])
    .to_vec();
    platform.push(value("module_id", raw.module()));
    platform.extend(absent(["gpu_fabric_guid"]));
    let mut inforom = vec![value("img_version", gpu.info_rom_image_version().ok())];
    inforom.extend(absent(["oem_object", "ecc_object", "pwr_object"]));
    let mut virtualization = vec![value(
        "virtualization_mode",
        gpu.virtualization_mode().ok().as_ref().map(virtualization_mode),
    )];
    virtualization.extend(absent(["host_vgpu_mode", "vgpu_heterogeneous_mode"]));
    elements.extend([
        group("platformInfo", platform),
        group("inforom_version", inforom),
        group("inforom_bbx_flush", absent(["latest_timestamp", "latest_duration"])),
        group("gpu_operation_mode", absent(["current_gom", "pending_gom"])),
        value("c2c_mode", raw.is_linked_to_processor().map(enabled)),
        group("gpu_virtualization_mode", virtualization),
    ]);
    elements.extend(absent(["gpu_recovery_action"]));
    elements.extend([
        value("gsp_firmware_version", gpu.gsp_firmware_version().ok()),
        group("ibmnpu", absent(["relaxed_ordering_mode"])),
    ]);
    elements
}

fn pci(gpu: &Device<'_>) -> Element {
    let info = gpu.pci_info().ok();
    let address = info.as_ref().and_then(|info| info.bus_id.parse::<PciAddress>().ok());
    let generation = gpu.current_pcie_link_gen().ok();
    let mut generations = vec![
        value("max_link_gen", gpu.max_pcie_link_gen().ok()),
        value("current_link_gen", generation),
        value("device_current_link_gen", generation),
        value("max_device_link_gen", gpu.max_pcie_link_gen().ok()),
    ];
    generations.extend(absent(["max_host_link_gen"]));
    let width = |width: u32| format!("{width}x");
    let throughput = |counter| {
        let kilobytes = gpu.pcie_throughput(counter).ok()?;
        Some(format!("{kilobytes} KB/s"))
    };
    let ids = info.as_ref();
    let mut elements = vec![
        value("pci_bus", address.map(|address| format!("{:02X}", address.bus()))),
        value("pci_device", address.map(|address| format!("{:02X}", address.device()))),
        value("pci_domain", address.map(|address| format!("{:04X}", address.domain()))),
    ];
    elements.extend(absent(["pci_base_class", "pci_sub_class"]));
    elements.extend([
        value("pci_device_id", ids.map(|info| format!("{:08X}", info.pci_device_id))),
        value("pci_bus_id", ids.map(|info| info.bus_id.clone())),
        value(
            "pci_sub_system_id",
            ids.and_then(|info| Some(format!("{:08X}", info.pci_sub_system_id?))),
        ),
        group(
            "pci_gpu_link_info",
            [
                group("pcie_gen", generations),
                group(
                    "link_widths",
                    [
                        value("max_link_width", gpu.max_pcie_link_width().ok().map(width)),
                        value("current_link_width", gpu.current_pcie_link_width().ok().map(width)),
                    ],
                ),
            ],
        ),
        group("pci_bridge_chip", absent(["bridge_chip_type", "bridge_chip_fw"])),
        value("replay_counter", gpu.pcie_replay_counter().ok()),
    ]);
    elements.extend(absent(["replay_rollover_counter"]));
    elements.extend([
        value("tx_util", throughput(PcieUtilCounter::Send)),
        value("rx_util", throughput(PcieUtilCounter::Receive)),
    ]);
    elements.extend(absent(["atomic_caps_outbound", "atomic_caps_inbound"]));
    group("pci", elements)
}

fn processes(gpu: &Device<'_>) -> Vec<Element> {
    let processes = gpu.running_compute_processes().unwrap_or_default();
    let describe = |process: nvml_wrapper::struct_wrappers::device::ProcessInfo| {
        let memory = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(mib(bytes)),
            UsedGpuMemory::Unavailable => None,
        };
        group(
            "process_info",
            [
                value("gpu_instance_id", process.gpu_instance_id),
                value("compute_instance_id", process.compute_instance_id),
                value("pid", Some(process.pid)),
                value("type", Some("C")),
                value("process_name", Some(program(process.pid))),
                value("used_memory", memory),
            ],
        )
    };
    processes.into_iter().map(describe).collect()
}

fn brand(brand: Brand) -> &'static str {
    match brand {
        Brand::Quadro => "Quadro",
        Brand::Tesla => "Tesla",
        Brand::GeForce => "GeForce",
        Brand::QuadroRTX => "Quadro RTX",
        Brand::NvidiaRTX => "NVIDIA RTX",
        Brand::Nvidia => "NVIDIA",
        Brand::GeForceRTX => "GeForce RTX",
        _ => "Unknown",
    }
}

fn architecture(architecture: &DeviceArchitecture) -> String {
    match architecture {
        DeviceArchitecture::Unknown => "Unknown".to_owned(),
        known => format!("{known:?}"),
    }
}

fn virtualization_mode(mode: &GpuVirtualizationMode) -> &'static str {
    match mode {
        GpuVirtualizationMode::Bare => "None",
        GpuVirtualizationMode::PassThrough => "Pass-Through",
        GpuVirtualizationMode::Vgpu => "VGPU",
        GpuVirtualizationMode::HostVgpu => "Host VGPU",
        GpuVirtualizationMode::HostVsga => "Host VSGA",
    }
}

/// What a reading's group names `power_state`.
pub(super) fn state(gpu: &Device<'_>) -> Option<String> {
    gpu.performance_state().ok().map(performance_state)
}

/// The mode's name.
pub(super) fn mode(gpu: &Device<'_>) -> Option<&'static str> {
    gpu.compute_mode().ok().map(compute_mode)
}
