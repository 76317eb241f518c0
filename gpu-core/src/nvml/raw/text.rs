//! Texts, read no further than the buffer that NVML was given: the wrapper reads to the next NUL, wherever that is.

use std::ffi::{c_char, c_uint};

use nvml_wrapper::{
    Device, Nvml,
    error::{NvmlError, nvml_sym, nvml_try},
};
use nvml_wrapper_sys::bindings::{nvmlPciInfo_t, nvmlReturn_t};

use super::{Handle, text};

/// What a call writes into a buffer of `LENGTH` characters.
fn filled<const LENGTH: usize>(fill: impl FnOnce(*mut c_char, c_uint) -> nvmlReturn_t) -> Result<String, NvmlError> {
    let mut buffer = [0; LENGTH];
    // No buffer of NVML's is longer than 96.
    nvml_try(fill(buffer.as_mut_ptr(), c_uint::try_from(LENGTH).unwrap_or(0)))?;
    Ok(text(&buffer))
}

/// A function for each call that writes a text about a device.
macro_rules! texts_of_devices {
    ($($(#[$doc:meta])* $name:ident, $call:ident, $length:literal;)*) => {$(
        $(#[$doc])*
        pub(in crate::nvml) fn $name(device: &Device<'_>) -> Result<String, NvmlError> {
            let call = nvml_sym(device.nvml().lib().$call.as_ref())?;
            let handle = Handle::of(device).0;
            filled::<$length>(|buffer, length| {
                // SAFETY: the handle is NVML's own, and the buffer has room for as many characters as `length` says.
                unsafe { call(handle, buffer, length) }
            })
        }
    )*};
}

// The lengths are NVML's own, `NVML_DEVICE_NAME_V2_BUFFER_SIZE` and so on.
texts_of_devices! {
    /// The name of a GPU or MIG device.
    name, nvmlDeviceGetName, 96;
    /// The identifier of a GPU or MIG device.
    uuid, nvmlDeviceGetUUID, 96;
    serial, nvmlDeviceGetSerial, 30;
    board_part_number, nvmlDeviceGetBoardPartNumber, 80;
    vbios_version, nvmlDeviceGetVbiosVersion, 32;
}

pub(in crate::nvml) fn driver_version(nvml: &Nvml) -> Result<String, NvmlError> {
    let call = nvml_sym(nvml.lib().nvmlSystemGetDriverVersion.as_ref())?;
    filled::<80>(|buffer, length| {
        // SAFETY: NVML is initialised as long as `nvml` lives, and the buffer has room for as many characters as `length` says.
        unsafe { call(buffer, length) }
    })
}

pub(in crate::nvml) fn nvml_version(nvml: &Nvml) -> Result<String, NvmlError> {
    let call = nvml_sym(nvml.lib().nvmlSystemGetNVMLVersion.as_ref())?;
    filled::<80>(|buffer, length| {
        // SAFETY: NVML is initialised as long as `nvml` lives, and the buffer has room for as many characters as `length` says.
        unsafe { call(buffer, length) }
    })
}

/// Where a GPU is on the bus and what it is there, as NVML writes it.
pub(in crate::nvml) struct PciInfo {
    pub(in crate::nvml) address: String,
    /// The device in the upper half, the vendor in the lower.
    pub(in crate::nvml) device: u32,
    /// Likewise; 0 where there is none.
    pub(in crate::nvml) subsystem: u32,
}

impl From<nvmlPciInfo_t> for PciInfo {
    fn from(info: nvmlPciInfo_t) -> Self {
        Self {
            address: text(&info.busId),
            device: info.pciDeviceId,
            subsystem: info.pciSubSystemId,
        }
    }
}

/// The struct before NVML has filled it.
pub(super) const NO_PCI_INFO: nvmlPciInfo_t = nvmlPciInfo_t {
    busIdLegacy: [0; 16],
    domain: 0,
    bus: 0,
    device: 0,
    pciDeviceId: 0,
    pciSubSystemId: 0,
    busId: [0; 32],
};

pub(in crate::nvml) fn pci_info(device: &Device<'_>) -> Result<PciInfo, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetPciInfo_v3.as_ref())?;
    let mut info = NO_PCI_INFO;
    let handle = Handle::of(device).0;
    // SAFETY: the handle is NVML's own, and `info` is a valid place for the struct of this version of the call.
    nvml_try(unsafe { call(handle, &raw mut info) })?;
    Ok(info.into())
}
