//! What holds GPUs together, and how they address memory.

use std::ffi::c_uint;

use nvml_wrapper::{
    Device, Nvml,
    error::{NvmlError, nvml_sym, nvml_try},
};
use nvml_wrapper_sys::bindings::{
    nvmlDeviceAddressingMode_t, nvmlGpuFabricInfo_t, nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t,
    nvmlSystemDriverBranchInfo_t,
};

use super::{Handle, is_other_version, text, text::NO_PCI_INFO, version_of};

/// What all versions of the struct say; the health is in the later two alone.
pub(in crate::nvml) struct FabricInfo {
    pub(in crate::nvml) cluster_uuid: [u8; 16],
    /// The code with which registering at the fabric ended.
    pub(in crate::nvml) status: u32,
    pub(in crate::nvml) clique: u32,
    pub(in crate::nvml) state: u32,
    pub(in crate::nvml) health_mask: Option<u32>,
}

/// The newest version of the struct that the driver takes, down to the call without versions (before 550).
pub(in crate::nvml) fn fabric_info(device: &Device<'_>) -> Result<FabricInfo, NvmlError> {
    let older = |error: &NvmlError| is_other_version(error);
    let answer = match fabric_v3(device) {
        Err(error) if older(&error) => fabric_v2(device),
        answer => answer,
    };
    match answer {
        Err(error) if older(&error) => fabric_v1(device),
        answer => answer,
    }
}

fn fabric_v3(device: &Device<'_>) -> Result<FabricInfo, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetGpuFabricInfoV.as_ref())?;
    let mut info = nvmlGpuFabricInfo_v3_t {
        version: version_of::<nvmlGpuFabricInfo_v3_t>(3),
        clusterUuid: [0; 16],
        status: 0,
        cliqueId: 0,
        state: 0,
        healthMask: 0,
        healthSummary: 0,
    };
    let handle = Handle::of(device).0;
    // SAFETY: the handle is NVML's own, and `info` is a valid place for the version of the struct that it says it is.
    nvml_try(unsafe { call(handle, &raw mut info) })?;
    Ok(FabricInfo {
        cluster_uuid: info.clusterUuid,
        status: info.status,
        clique: info.cliqueId,
        state: info.state.into(),
        health_mask: Some(info.healthMask),
    })
}

fn fabric_v2(device: &Device<'_>) -> Result<FabricInfo, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetGpuFabricInfoV.as_ref())?;
    let mut info = nvmlGpuFabricInfo_v2_t {
        version: version_of::<nvmlGpuFabricInfo_v2_t>(2),
        clusterUuid: [0; 16],
        status: 0,
        cliqueId: 0,
        state: 0,
        healthMask: 0,
    };
    let handle = Handle::of(device).0;
    // SAFETY: the handle is NVML's own, and `info` is a valid place for the version of the struct that it says it is: the
    // driver reads the version first and writes no further than that version's end.
    nvml_try(unsafe { call(handle, (&raw mut info).cast()) })?;
    Ok(FabricInfo {
        cluster_uuid: info.clusterUuid,
        status: info.status,
        clique: info.cliqueId,
        state: info.state.into(),
        health_mask: Some(info.healthMask),
    })
}

fn fabric_v1(device: &Device<'_>) -> Result<FabricInfo, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetGpuFabricInfo.as_ref())?;
    let mut info = nvmlGpuFabricInfo_t {
        clusterUuid: [0; 16],
        status: 0,
        cliqueId: 0,
        state: 0,
    };
    let handle = Handle::of(device).0;
    // SAFETY: the handle is NVML's own, and `info` is a valid place for the struct.
    nvml_try(unsafe { call(handle, &raw mut info) })?;
    Ok(FabricInfo {
        cluster_uuid: info.clusterUuid,
        status: info.status,
        clique: info.cliqueId,
        state: info.state.into(),
        health_mask: None,
    })
}

/// `NVML_DEVICE_ADDRESSING_MODE_*`.
pub(in crate::nvml) fn addressing_mode(device: &Device<'_>) -> Result<u32, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetAddressingMode.as_ref())?;
    let mut mode = nvmlDeviceAddressingMode_t {
        version: version_of::<nvmlDeviceAddressingMode_t>(1),
        value: 0,
    };
    let handle = Handle::of(device).0;
    // SAFETY: the handle is NVML's own, and `mode` is a valid place for the version of the struct that it says it is.
    nvml_try(unsafe { call(handle, &raw mut mode) })?;
    Ok(mode.value)
}

/// The place of the GPU on its board or in its chassis.
pub(in crate::nvml) fn module_id(device: &Device<'_>) -> Result<u32, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetModuleId.as_ref())?;
    let mut module = 0;
    let handle = Handle::of(device).0;
    // SAFETY: the handle is NVML's own, and `module` is a valid place for one number.
    nvml_try(unsafe { call(handle, &raw mut module) })?;
    Ok(module)
}

/// The branch that the driver was built from.
pub(in crate::nvml) fn driver_branch(nvml: &Nvml) -> Result<String, NvmlError> {
    const LENGTH: c_uint = 80; // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE, and the size of the field
    let call = nvml_sym(nvml.lib().nvmlSystemGetDriverBranch.as_ref())?;
    let mut info = nvmlSystemDriverBranchInfo_t {
        version: version_of::<nvmlSystemDriverBranchInfo_t>(1),
        branch: [0; LENGTH as usize],
    };
    // SAFETY: NVML is initialised as long as `nvml` lives, and `info` is a valid place for the version of the struct that it
    // says it is, with room for as many characters as the call is told.
    nvml_try(unsafe { call(&raw mut info, LENGTH) })?;
    Ok(text(&info.branch))
}

/// `NVML_TOPOLOGY_*`, by number: the wrapper takes the device by value, which it cannot copy.
pub(in crate::nvml) fn common_ancestor(first: &Device<'_>, second: &Device<'_>) -> Result<u32, NvmlError> {
    let call = nvml_sym(first.nvml().lib().nvmlDeviceGetTopologyCommonAncestor.as_ref())?;
    let mut level = 0;
    let handles = (Handle::of(first).0, Handle::of(second).0);
    // SAFETY: the handles are NVML's own, of one library, and `level` is a valid place for the enumeration.
    nvml_try(unsafe { call(handles.0, handles.1, &raw mut level) })?;
    Ok(level)
}

/// `NVML_P2P_STATUS_*`, for one `NVML_P2P_CAPS_INDEX_*`.
pub(in crate::nvml) fn p2p_status(first: &Device<'_>, second: &Device<'_>, capability: u32) -> Result<u32, NvmlError> {
    let call = nvml_sym(first.nvml().lib().nvmlDeviceGetP2PStatus.as_ref())?;
    let mut status = 0;
    let handles = (Handle::of(first).0, Handle::of(second).0);
    // SAFETY: the handles are NVML's own, of one library, and `status` is a valid place for the enumeration.
    nvml_try(unsafe { call(handles.0, handles.1, capability, &raw mut status) })?;
    Ok(status)
}

pub(in crate::nvml) fn nvlink_active(device: &Device<'_>, link: u32) -> Result<bool, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetNvLinkState.as_ref())?;
    let mut active = 0;
    let handle = Handle::of(device).0;
    // SAFETY: the handle is NVML's own, and `active` is a valid place for the enumeration.
    nvml_try(unsafe { call(handle, link, &raw mut active) })?;
    Ok(active != 0)
}

/// `NVML_NVLINK_DEVICE_TYPE_*` of what the link leads to.
pub(in crate::nvml) fn nvlink_remote_kind(device: &Device<'_>, link: u32) -> Result<u32, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetNvLinkRemoteDeviceType.as_ref())?;
    let mut kind = 0;
    let handle = Handle::of(device).0;
    // SAFETY: the handle is NVML's own, and `kind` is a valid place for the enumeration.
    nvml_try(unsafe { call(handle, link, &raw mut kind) })?;
    Ok(kind)
}

/// The PCI address of what the link leads to, as NVML writes it.
pub(in crate::nvml) fn nvlink_remote_address(device: &Device<'_>, link: u32) -> Result<String, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetNvLinkRemotePciInfo_v2.as_ref())?;
    let mut info = NO_PCI_INFO;
    let handle = Handle::of(device).0;
    // SAFETY: the handle is NVML's own, and `info` is a valid place for the struct of this version of the call.
    nvml_try(unsafe { call(handle, link, &raw mut info) })?;
    Ok(text(&info.busId))
}

/// Whether memory pages wait for a reboot to be retired; GPUs before Ampere.
pub(in crate::nvml) fn retirement_pending(device: &Device<'_>) -> Result<bool, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetRetiredPagesPendingStatus.as_ref())?;
    let mut pending = 0;
    let handle = Handle::of(device).0;
    // SAFETY: the handle is NVML's own, and `pending` is a valid place for the enumeration.
    nvml_try(unsafe { call(handle, &raw mut pending) })?;
    Ok(pending != 0)
}

/// Memory rows that were replaced by spare ones.
pub(in crate::nvml) struct RemappedRows {
    pub(in crate::nvml) correctable: u32,
    pub(in crate::nvml) uncorrectable: u32,
    pub(in crate::nvml) pending: bool,
    pub(in crate::nvml) failed: bool,
}

pub(in crate::nvml) fn remapped_rows(device: &Device<'_>) -> Result<RemappedRows, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetRemappedRows.as_ref())?;
    let (mut correctable, mut uncorrectable, mut pending, mut failed) = (0, 0, 0, 0);
    let handle = Handle::of(device).0;
    // SAFETY: the handle is NVML's own, and the four are valid places for numbers.
    nvml_try(unsafe {
        call(
            handle,
            &raw mut correctable,
            &raw mut uncorrectable,
            &raw mut pending,
            &raw mut failed,
        )
    })?;
    Ok(RemappedRows {
        correctable,
        uncorrectable,
        pending: pending != 0,
        failed: failed != 0,
    })
}
