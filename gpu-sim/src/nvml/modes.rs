//! Modes a device is in. All as measured on an idle H200, and all boards alike.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{nvmlDeviceAddressingMode_v1_t, nvmlReturn_t};

use super::{
    abi::{Handle, InOut, Out, put, version_of},
    code::Code,
    session::{on, values},
};

values! {
    fn nvmlDeviceGetPersistenceMode(_, _) -> c_uint { 1 }
    // NVML_COMPUTEMODE_DEFAULT
    fn nvmlDeviceGetComputeMode(_, _) -> c_uint { 0 }
    fn nvmlDeviceGetDefaultEccMode(_, _) -> c_uint { 1 }
    fn nvmlDeviceGetDisplayMode(_, _) -> c_uint { 1 }
    fn nvmlDeviceGetDisplayActive(_, _) -> c_uint { 0 }
    fn nvmlDeviceGetAccountingMode(_, _) -> c_uint { 0 }
    fn nvmlDeviceGetAccountingBufferSize(_, _) -> c_uint { 4000 }
    fn nvmlDeviceGetPowerManagementMode(_, _) -> c_uint { 1 }
    fn nvmlDeviceGetVirtualizationMode(_, session) -> c_uint { session.node.virtualization }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetEccMode(device: Handle, current: Out<'_, c_uint>, pending: Out<'_, c_uint>) -> nvmlReturn_t {
    on(device, |_, _| {
        put(current, 1)?;
        put(pending, 1)
    })
}

/// No coherent addressing: `NVML_DEVICE_ADDRESSING_MODE_NONE`.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetAddressingMode(
    device: Handle,
    mode: InOut<'_, nvmlDeviceAddressingMode_v1_t>,
) -> nvmlReturn_t {
    on(device, |_, _| {
        let mode = mode.ok_or(Code::INVALID_ARGUMENT)?;
        if mode.version != version_of::<nvmlDeviceAddressingMode_v1_t>(1) {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        mode.value = 0;
        Ok(())
    })
}
