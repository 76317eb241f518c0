//! MIG: mode, and that there are no instances.

use std::ffi::{c_uint, c_void};

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use super::{
    abi::{Handle, Out, put},
    code::Code,
    session::{Gpu, on, values},
};

fn check_capable(gpu: &Gpu) -> super::code::Answer {
    if gpu.board.mig_capable {
        Ok(())
    } else {
        Err(Code::NOT_SUPPORTED)
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigMode(device: Handle, current: Out<'_, c_uint>, pending: Out<'_, c_uint>) -> nvmlReturn_t {
    on(device, |gpu, _| {
        check_capable(gpu)?;
        put(current, 0)?;
        put(pending, 0)
    })
}

values! {
    // Also on a capable board while the mode is off (measured).
    fn nvmlDeviceGetMaxMigDeviceCount(_, _) -> c_uint { 0 }
    fn nvmlDeviceIsMigDeviceHandle(_, _) -> c_uint { 0 }
    // These are for the handle of a MIG device, which this is not (measured).
    fn nvmlDeviceGetGpuInstanceId(_, _) -> c_uint { Err(Code::INVALID_ARGUMENT)? }
    fn nvmlDeviceGetComputeInstanceId(_, _) -> c_uint { Err(Code::INVALID_ARGUMENT)? }
    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(_, _) -> nvmlDevice_t { Err(Code::INVALID_ARGUMENT)? }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: Handle,
    _index: c_uint,
    mig_device: Out<'_, nvmlDevice_t>,
) -> nvmlReturn_t {
    on(device, |gpu, _| {
        check_capable(gpu)?;
        mig_device.ok_or(Code::INVALID_ARGUMENT)?;
        Err(Code::NOT_FOUND)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceById(
    device: Handle,
    _id: c_uint,
    instance: Out<'_, *mut c_void>,
) -> nvmlReturn_t {
    on(device, |gpu, _| {
        check_capable(gpu)?;
        put(instance, std::ptr::null_mut())?; // as measured
        Err(Code::NOT_FOUND)
    })
}
