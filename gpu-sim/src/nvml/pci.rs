//! Where the device sits on the bus.

use std::ffi::{c_char, c_uint, c_ulong};

use nvml_wrapper_sys::bindings::{nvmlPciInfo_t, nvmlPciInfoExt_v1_t, nvmlReturn_t};

use super::{
    abi::{Handle, InOut, List, Out, field, put, version_of},
    code::Code,
    session::{Gpu, on, values},
};
use crate::PciIds;

/// Device id above, vendor id below.
pub(super) fn combined(device: u16) -> c_uint {
    u32::from(device) << 16 | u32::from(PciIds::VENDOR)
}

fn info(gpu: &Gpu) -> nvmlPciInfo_t {
    let address = gpu.entry.pci;
    nvmlPciInfo_t {
        busIdLegacy: field(&address.nvml_legacy()),
        domain: address.domain(),
        bus: address.bus().into(),
        device: address.device().into(),
        pciDeviceId: combined(gpu.board.pci.device),
        pciSubSystemId: combined(gpu.board.pci.subsystem_device),
        busId: field(&address.nvml()),
    }
}

/// The structure of the first version: what old programs have room for. Programs built today call version 3.
#[repr(C)]
struct PciInfo1 {
    bus_id: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
}

/// Version 2; four reserved fields follow.
#[repr(C)]
struct PciInfo2 {
    first: PciInfo1,
    subsystem: c_uint,
}

fn info1(gpu: &Gpu) -> PciInfo1 {
    let address = gpu.entry.pci;
    PciInfo1 {
        bus_id: field(&address.nvml_legacy()),
        domain: address.domain(),
        bus: address.bus().into(),
        device: address.device().into(),
        device_id: combined(gpu.board.pci.device),
    }
}

values! {
    fn nvmlDeviceGetPciInfo(gpu, _) -> PciInfo1 { info1(gpu) }
    fn nvmlDeviceGetPciInfo_v2(gpu, _) -> PciInfo2 { PciInfo2 { first: info1(gpu), subsystem: combined(gpu.board.pci.subsystem_device) } }
    fn nvmlDeviceGetPciInfo_v3(gpu, _) -> nvmlPciInfo_t { info(gpu) }
    fn nvmlDeviceGetMaxPcieLinkGeneration(gpu, _) -> c_uint { gpu.board.pci.link_generation }
    fn nvmlDeviceGetGpuMaxPcieLinkGeneration(gpu, _) -> c_uint { gpu.board.pci.link_generation }
    fn nvmlDeviceGetCurrPcieLinkGeneration(gpu, _) -> c_uint { gpu.board.pci.link_generation }
    fn nvmlDeviceGetMaxPcieLinkWidth(gpu, _) -> c_uint { gpu.board.pci.link_width }
    fn nvmlDeviceGetCurrPcieLinkWidth(gpu, _) -> c_uint { gpu.board.pci.link_width }
    fn nvmlDeviceGetPcieReplayCounter(_, _) -> c_uint { 0 }
    fn nvmlDeviceGetIrqNum(gpu, _) -> c_uint { crate::tree::irq(&gpu.entry) }
    // NVML_BUS_TYPE_PCIE
    fn nvmlDeviceGetBusType(_, _) -> c_uint { 2 }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPciInfoExt(device: Handle, info: InOut<'_, nvmlPciInfoExt_v1_t>) -> nvmlReturn_t {
    on(device, |gpu, _| {
        let info = info.ok_or(Code::INVALID_ARGUMENT)?;
        if info.version != version_of::<nvmlPciInfoExt_v1_t>(1) {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        let address = gpu.entry.pci;
        *info = nvmlPciInfoExt_v1_t {
            version: info.version,
            domain: address.domain(),
            bus: address.bus().into(),
            device: address.device().into(),
            pciDeviceId: combined(gpu.board.pci.device),
            pciSubSystemId: combined(gpu.board.pci.subsystem_device),
            baseClass: gpu.board.pci.class >> 16,
            subClass: gpu.board.pci.class >> 8 & 0xff,
            busId: field(&address.nvml()),
        };
        Ok(())
    })
}

/// How close two devices are: on one PCIe switch, under one host bridge, in one NUMA node, or neither.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTopologyCommonAncestor(
    device: Handle,
    other: Handle,
    level: Out<'_, c_uint>,
) -> nvmlReturn_t {
    on(device, |gpu, session| {
        let other = session.gpu(other)?;
        session.check(other)?;
        let level = level.ok_or(Code::INVALID_ARGUMENT)?;
        let (a, b) = (&gpu.entry, &other.entry);
        let ancestor = if a.pci == b.pci {
            return Err(Code::NOT_SUPPORTED); // measured
        } else if a.switch.is_some() && a.switch == b.switch {
            10 // NVML_TOPOLOGY_SINGLE
        } else if a.pci.root() == b.pci.root() {
            30 // NVML_TOPOLOGY_HOSTBRIDGE
        } else if a.numa.is_some() && a.numa == b.numa {
            40 // NVML_TOPOLOGY_NODE
        } else {
            50 // NVML_TOPOLOGY_SYSTEM
        };
        put(Some(level), ancestor)
    })
}

/// The NUMA node as a bit in a list of words. It is the same for a node and for a socket, which have one each here. A machine
/// without NUMA counts as one node (recorded: `nvidia-smi topo -m` on an H200).
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryAffinity(
    device: Handle,
    length: c_uint,
    nodes: List<c_ulong>,
    scope: c_uint,
) -> nvmlReturn_t {
    on(device, |gpu, _| {
        if nodes.is_null() || length == 0 || scope > 1 {
            return Err(Code::INVALID_ARGUMENT);
        }
        let node = gpu.entry.numa.unwrap_or(0);
        let (word, bit) = (node / c_ulong::BITS, node % c_ulong::BITS);
        if word >= length {
            return Err(Code::INSUFFICIENT_SIZE);
        }
        let words = (0..length).map(|at| if at == word { 1 << bit } else { 0 });
        // SAFETY: the caller says by the length how much room there is, and there are as many words.
        unsafe { nodes.write(words) };
        Ok(())
    })
}
