//! NVLink and the fabric it forms.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    nvmlC2cModeInfo_v1_t, nvmlGpuFabricInfo_t, nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t, nvmlPciInfo_t,
    nvmlReturn_t,
};

use super::{
    abi::{Handle, InOut, Out, field, put, version_of},
    code::{Answer, Code},
    pci::combined,
    session::{Gpu, Session, on},
};
use crate::{NvLink, PciAddress, board};

/// The node's NVLink, for a link that a GPU has: without NVLink nothing is supported, past the end is invalid.
fn link(session: &Session, link: c_uint) -> Answer<&NvLink> {
    let nvlink = session.node.nvlink.as_ref().ok_or(Code::NOT_SUPPORTED)?;
    if link < nvlink.links {
        Ok(nvlink)
    } else {
        Err(Code::INVALID_ARGUMENT)
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkState(device: Handle, index: c_uint, active: Out<'_, c_uint>) -> nvmlReturn_t {
    on(device, |_, session| link(session, index).and_then(|_| put(active, 1)))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkVersion(device: Handle, index: c_uint, version: Out<'_, c_uint>) -> nvmlReturn_t {
    on(device, |_, session| put(version, link(session, index)?.version))
}

/// A link leads to an NVSwitch (`NVML_NVLINK_DEVICE_TYPE_SWITCH`, 2), or over a bridge to another GPU (0).
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkRemoteDeviceType(
    device: Handle,
    index: c_uint,
    kind: Out<'_, c_uint>,
) -> nvmlReturn_t {
    on(device, |_, session| {
        let bridged = link(session, index)?.bridged_pairs;
        put(kind, if bridged { 0 } else { 2 })
    })
}

/// Address and device id of what a link leads to. Where the switches are in other machines no address is known.
fn other_end(gpu: &Gpu, nvlink: &NvLink, index: c_uint, session: &Session) -> Answer<(PciAddress, u16)> {
    if nvlink.bridged_pairs {
        let partner = session.node.gpus.get(gpu.slot ^ 1).ok_or(Code::NOT_SUPPORTED)?;
        let board = board::find(&partner.board).ok_or(Code::UNKNOWN)?;
        return Ok((partner.pci, board.pci.device));
    }
    let place = (index as usize)
        .checked_rem(nvlink.switches.len())
        .ok_or(Code::NOT_SUPPORTED)?;
    let address = nvlink.switches.get(place).ok_or(Code::UNKNOWN)?;
    Ok((*address, nvlink.switch_device))
}

fn remote(gpu: &Gpu, session: &Session, index: c_uint, pci: Out<'_, nvmlPciInfo_t>) -> Answer {
    let (address, device_id) = other_end(gpu, link(session, index)?, index, session)?;
    let info = nvmlPciInfo_t {
        busIdLegacy: field(&address.nvml_legacy()),
        domain: address.domain(),
        bus: address.bus().into(),
        device: address.device().into(),
        pciDeviceId: combined(device_id),
        pciSubSystemId: 0,
        busId: field(&address.nvml()),
    };
    put(pci, info)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo(
    device: Handle,
    index: c_uint,
    pci: Out<'_, nvmlPciInfo_t>,
) -> nvmlReturn_t {
    on(device, |gpu, session| remote(gpu, session, index, pci))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
    device: Handle,
    index: c_uint,
    pci: Out<'_, nvmlPciInfo_t>,
) -> nvmlReturn_t {
    on(device, |gpu, session| remote(gpu, session, index, pci))
}

/// Writes what the versions have in common. Without a fabric the call succeeds and the state is 0, not supported
/// (measured); with one it is 3, completed. Field by field, so that what lies between the fields stays as it was.
macro_rules! fill {
    ($info:expr, $session:expr) => {{
        let fabric = $session.node.fabric.as_ref();
        $info.clusterUuid = fabric.and_then(crate::Fabric::cluster_bytes).unwrap_or_default();
        $info.status = 0;
        $info.cliqueId = fabric.map_or(0, |fabric| fabric.clique);
        $info.state = if fabric.is_some() { 3 } else { 0 };
    }};
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuFabricInfo(device: Handle, info: InOut<'_, nvmlGpuFabricInfo_t>) -> nvmlReturn_t {
    on(device, |_, session| {
        let info = info.ok_or(Code::INVALID_ARGUMENT)?;
        fill!(info, session);
        Ok(())
    })
}

/// A pointer to either version of the structure; the version in its first field tells which.
#[repr(transparent)]
struct VersionedFabricInfo(*mut c_uint);

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuFabricInfoV(device: Handle, info: VersionedFabricInfo) -> nvmlReturn_t {
    on(device, |_, session| {
        if info.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: it is not null, and the caller gives a structure that starts with its version.
        let version = unsafe { info.0.read() };
        // The function came with version 2; version 3 came with driver 580.
        let knows_3 = session.driver.is_at_least(580);
        if version == version_of::<nvmlGpuFabricInfo_v2_t>(2) {
            // SAFETY: by its version the structure behind the pointer is this one, and every bit pattern is a value.
            let info = unsafe { &mut *info.0.cast::<nvmlGpuFabricInfo_v2_t>() };
            fill!(info, session);
            info.healthMask = 0;
        } else if knows_3 && version == version_of::<nvmlGpuFabricInfo_v3_t>(3) {
            // SAFETY: by its version the structure behind the pointer is this one, and every bit pattern is a value.
            let info = unsafe { &mut *info.0.cast::<nvmlGpuFabricInfo_v3_t>() };
            fill!(info, session);
            info.healthMask = 0;
            info.healthSummary = 0;
        } else {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        Ok(())
    })
}

/// A coherent board is linked to the processor; others are told not to be (measured).
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetC2cModeInfoV(device: Handle, info: Out<'_, nvmlC2cModeInfo_v1_t>) -> nvmlReturn_t {
    on(device, |gpu, _| {
        let linked = gpu.board.coherent.into();
        put(info, nvmlC2cModeInfo_v1_t { isC2cEnabled: linked })
    })
}

/// Whether two GPUs reach each other's memory by reading (0), writing (1), over NVLink (2) or with atomics (3): over
/// NVLink in every way, else by reading and writing within a NUMA node. The values are `NVML_P2P_STATUS_OK` and
/// `NVML_P2P_STATUS_NOT_SUPPORTED`.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetP2PStatus(
    device: Handle,
    other: Handle,
    way: c_uint,
    status: Out<'_, c_uint>,
) -> nvmlReturn_t {
    on(device, |gpu, session| {
        let other = session.gpu(other)?;
        session.check(other)?;
        let nvlink = session.node.nvlink.as_ref();
        let linked = nvlink.is_some_and(|nvlink| !nvlink.bridged_pairs || gpu.slot ^ 1 == other.slot);
        let near = gpu.entry.numa == other.entry.numa;
        let reached = match way {
            0 | 1 => linked || near,
            2 | 3 => linked,
            4 => false,
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        put(status, if reached { 0 } else { 5 })
    })
}
