//! Modes a device is in. All as measured on an idle H200, and all boards alike.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{nvmlDeviceAddressingMode_v1_t, nvmlReturn_t};

use super::{
    abi::{Handle, InOut, Out, put, version_of},
    code::{Answer, Code},
    session::{Gpu, on, values},
};
use crate::Ecc;

values! {
    fn nvmlDeviceGetPersistenceMode(gpu, session) -> c_uint { (!session.record(gpu).persistence_off).into() }
    fn nvmlDeviceGetComputeMode(gpu, session) -> c_uint { session.record(gpu).compute_mode }
    fn nvmlDeviceGetDefaultEccMode(gpu, _) -> c_uint { ecc(gpu)? }
    fn nvmlDeviceGetDisplayMode(_, _) -> c_uint { 1 }
    fn nvmlDeviceGetDisplayActive(_, _) -> c_uint { 0 }
    fn nvmlDeviceGetAccountingMode(_, _) -> c_uint { 0 }
    fn nvmlDeviceGetAccountingBufferSize(_, _) -> c_uint { 4000 }
    fn nvmlDeviceGetPowerManagementMode(_, _) -> c_uint { 1 }
    fn nvmlDeviceGetVirtualizationMode(_, session) -> c_uint { session.node.virtualization }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceSetPersistenceMode(device: Handle, mode: c_uint) -> nvmlReturn_t {
    on(device, |gpu, session| {
        let off = match mode {
            0 => true,
            1 => false,
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        session.change(gpu, |record| {
            record.persistence_off = off;
            Ok(())
        })
    })
}

/// Default (0), prohibited (2) and one process (3); one thread (1) is not supported any more, as `nvml.h` has it.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceSetComputeMode(device: Handle, mode: c_uint) -> nvmlReturn_t {
    on(device, |gpu, session| {
        match mode {
            0 | 2 | 3 => {}
            1 => return Err(Code::NOT_SUPPORTED),
            _ => return Err(Code::INVALID_ARGUMENT),
        }
        session.change(gpu, |record| {
            record.compute_mode = mode;
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetEccMode(device: Handle, current: Out<'_, c_uint>, pending: Out<'_, c_uint>) -> nvmlReturn_t {
    on(device, |gpu, _| {
        let mode = ecc(gpu)?;
        put(current, mode)?;
        put(pending, mode)
    })
}

fn ecc(gpu: &Gpu) -> Answer<c_uint> {
    match gpu.board.ecc {
        Ecc::On => Ok(1),
        Ecc::Off => Ok(0),
        Ecc::Absent => Err(Code::NOT_SUPPORTED),
    }
}

/// `NVML_DEVICE_ADDRESSING_MODE_ATS` on a coherent board, else `…_NONE`.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetAddressingMode(
    device: Handle,
    mode: InOut<'_, nvmlDeviceAddressingMode_v1_t>,
) -> nvmlReturn_t {
    on(device, |gpu, _| {
        let mode = mode.ok_or(Code::INVALID_ARGUMENT)?;
        if mode.version != version_of::<nvmlDeviceAddressingMode_v1_t>(1) {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        mode.value = if gpu.board.coherent { 2 } else { 0 };
        Ok(())
    })
}
