//! MIG: the mode, and MIG devices as devices.

mod compute;
mod instances;
mod profiles;

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlDeviceAttributes_t, nvmlReturn_t};

use super::{
    abi::{Handle, Out, put},
    code::{Answer, Code},
    session::{Gpu, MigDevice, Session, Target, on, on_either},
};
use crate::{
    mig::{Activation, MigTable},
    state::Event,
};

/// What can be made of a GPU; without it, it cannot be partitioned.
fn table(gpu: &Gpu) -> Answer<&'static MigTable> {
    gpu.table.ok_or(Code::NOT_SUPPORTED)
}

/// Reports that a GPU's partitions changed. That nobody can be told does not undo the change.
fn report(session: &Session, gpu: &Gpu) {
    if let Some(state) = session.state() {
        let _ = state.append(&Event::of_gpu(&gpu.entry.uuid, Event::MIG_CHANGE, 0));
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigMode(device: Handle, current: Out<'_, c_uint>, pending: Out<'_, c_uint>) -> nvmlReturn_t {
    on(device, |gpu, session| {
        table(gpu)?;
        let mig = &session.record(gpu).mig;
        put(current, mig.mode.into())?;
        put(pending, mig.pending.into())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceSetMigMode(device: Handle, mode: c_uint, activation: Out<'_, c_uint>) -> nvmlReturn_t {
    on(device, |gpu, session| {
        table(gpu)?;
        let activation = activation.ok_or(Code::INVALID_ARGUMENT)?;
        let on = match mode {
            0 => false,
            1 => true,
            _ => return Err(Code::INVALID_ARGUMENT),
        };
        let before = session.record(gpu).mig.mode;
        let done = session.change(gpu, |record| {
            let rules = gpu.board.mode_rules(session.node.virtualization);
            record.set_mig_mode(on, rules).map_err(Code::from)
        })?;
        if done == Activation::Done && before != on {
            report(session, gpu);
        }
        put(Some(activation), done.code())
    })
}

/// How many MIG devices there can be; none while the mode is off, also on a board that has no such mode (measured).
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: Handle, count: Out<'_, c_uint>) -> nvmlReturn_t {
    on(device, |gpu, session| {
        let on = session.record(gpu).mig.mode;
        put(count, gpu.table.filter(|_| on).map_or(0, |table| table.slices))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: Handle,
    index: c_uint,
    mig_device: Out<'_, nvmlDevice_t>,
) -> nvmlReturn_t {
    on(device, |gpu, session| {
        table(gpu)?;
        let out = mig_device.ok_or(Code::INVALID_ARGUMENT)?;
        let found = session.mig_devices(gpu).find(|device| device.index == index);
        let device = found.ok_or(Code::NOT_FOUND)?;
        put(Some(out), Handle::of_mig(device.place()).raw())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceIsMigDeviceHandle(device: Handle, is: Out<'_, c_uint>) -> nvmlReturn_t {
    on_either(device, |target, _| put(is, matches!(target, Target::Mig(_)).into()))
}

/// Some functions are for MIG devices; for a GPU they are an invalid argument (measured).
fn mig_device(target: Target<'_>) -> Answer<MigDevice<'_>> {
    match target {
        Target::Mig(device) => Ok(device),
        Target::Gpu(_) => Err(Code::INVALID_ARGUMENT),
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceId(device: Handle, id: Out<'_, c_uint>) -> nvmlReturn_t {
    on_either(device, |target, _| put(id, mig_device(target)?.instance.id))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetComputeInstanceId(device: Handle, id: Out<'_, c_uint>) -> nvmlReturn_t {
    on_either(device, |target, _| put(id, mig_device(target)?.compute.id))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
    device: Handle,
    whole: Out<'_, nvmlDevice_t>,
) -> nvmlReturn_t {
    on_either(device, |target, _| put(whole, mig_device(target)?.gpu.handle.raw()))
}

/// Compute and memory of a MIG device; for a GPU it is not supported (measured).
fn attributes(target: &Target<'_>, attributes: Out<'_, nvmlDeviceAttributes_t>) -> Answer {
    let Target::Mig(device) = target else {
        return Err(Code::NOT_SUPPORTED);
    };
    let profile = device.profile;
    let value = nvmlDeviceAttributes_t {
        multiprocessorCount: device.table.multiprocessors(device.compute.slices),
        sharedCopyEngineCount: profile.copy_engines,
        sharedDecoderCount: profile.decoders,
        sharedEncoderCount: profile.encoders,
        sharedJpegCount: profile.jpeg,
        sharedOfaCount: profile.ofa,
        gpuInstanceSliceCount: profile.slices,
        computeInstanceSliceCount: device.compute.slices,
        memorySizeMB: profile.memory_mib,
    };
    put(attributes, value)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetAttributes(device: Handle, out: Out<'_, nvmlDeviceAttributes_t>) -> nvmlReturn_t {
    on_either(device, |target, _| attributes(&target, out))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetAttributes_v2(device: Handle, out: Out<'_, nvmlDeviceAttributes_t>) -> nvmlReturn_t {
    on_either(device, |target, _| attributes(&target, out))
}
