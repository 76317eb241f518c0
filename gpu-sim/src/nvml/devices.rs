//! Counting devices and finding one.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use super::{
    abi::{Out, Text, put},
    calls::{called, called_by},
    code::{Answer, Code},
    session::{Gpu, MigDevice, Session, Target, answer, reach},
};
use crate::PciAddress;

fn count(session: &Session, count: Out<'_, c_uint>) -> Answer {
    put(count, u32::try_from(session.gpus.len()).map_err(|_| Code::UNKNOWN)?)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount(device_count: Out<'_, c_uint>) -> nvmlReturn_t {
    answer(|session| count(session, device_count))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(device_count: Out<'_, c_uint>) -> nvmlReturn_t {
    answer(|session| count(session, device_count))
}

/// Answers when the GPU that is meant does; finding it needs nothing of it.
fn found<F: FnOnce(&Session, Option<&Gpu>) -> Answer>(
    find: impl Fn(&Session) -> Answer<Option<&Gpu>>,
    answer: F,
) -> nvmlReturn_t {
    let slot = |session: &Session| find(session).ok().flatten().map(|gpu| gpu.slot);
    called::<F>(|| None, || reach(slot, |session| answer(session, find(session)?)))
}

/// Hands out a GPU's handle; a lost GPU has none.
fn hand_out(session: &Session, gpu: Option<&Gpu>, absent: Code, device: Out<'_, nvmlDevice_t>) -> Answer {
    let device = device.ok_or(Code::INVALID_ARGUMENT)?;
    let gpu = gpu.ok_or(absent)?;
    session.check(gpu)?;
    put(Some(device), gpu.handle.raw())
}

fn at_index(session: &Session, index: c_uint) -> Option<&Gpu> {
    session.gpus.iter().find(|gpu| gpu.index == index)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex(index: c_uint, device: Out<'_, nvmlDevice_t>) -> nvmlReturn_t {
    found(
        |session| Ok(at_index(session, index)),
        |session, gpu| hand_out(session, gpu, Code::INVALID_ARGUMENT, device),
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: Out<'_, nvmlDevice_t>) -> nvmlReturn_t {
    found(
        |session| Ok(at_index(session, index)),
        |session, gpu| hand_out(session, gpu, Code::INVALID_ARGUMENT, device),
    )
}

/// Upper and lower case differ, and the prefix `GPU-` may be absent (both measured). A MIG device is found by its UUID, and
/// by the older form `MIG-<GPU's UUID>/<GPU instance>/<compute instance>`.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByUUID(uuid: Text, device: Out<'_, nvmlDevice_t>) -> nvmlReturn_t {
    called_by(|| {
        reach(
            |session| named(session, &uuid).map(|target| target.whole().slot),
            |session| {
                uuid.read()?;
                let out = device.ok_or(Code::INVALID_ARGUMENT)?;
                let target = named(session, &uuid).ok_or(Code::NOT_FOUND)?;
                session.check(target.whole())?;
                put(Some(out), target.handle().raw())
            },
        )
    })
}

fn named<'a>(session: &'a Session, uuid: &Text) -> Option<Target<'a>> {
    let uuid = uuid.read().ok()?;
    if uuid.starts_with("MIG-") {
        return mig_device(session, uuid).map(Target::Mig);
    }
    let bare = |uuid: &str| uuid.strip_prefix("GPU-").unwrap_or(uuid).to_owned();
    let mut gpus = session.gpus.iter();
    gpus.find(|gpu| bare(&gpu.entry.uuid) == bare(uuid)).map(Target::Gpu)
}

fn mig_device<'a>(session: &'a Session, uuid: &str) -> Option<MigDevice<'a>> {
    let old = |device: &MigDevice<'_>| {
        let gpu = &device.gpu.entry.uuid;
        format!("MIG-{gpu}/{}/{}", device.instance.id, device.compute.id)
    };
    let mut devices = session.gpus.iter().flat_map(|gpu| session.mig_devices(gpu));
    devices.find(|device| device.uuid() == uuid || old(device) == uuid)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleBySerial(serial: Text, device: Out<'_, nvmlDevice_t>) -> nvmlReturn_t {
    found(
        |session| {
            let serial = serial.read()?;
            Ok(session.gpus.iter().find(|gpu| gpu.entry.serial == serial))
        },
        |session, gpu| hand_out(session, gpu, Code::NOT_FOUND, device),
    )
}

/// Domain and function may be absent; a function other than 0 is an invalid argument (both measured).
fn at_address<'a>(session: &'a Session, address: &Text) -> Answer<Option<&'a Gpu>> {
    let address: PciAddress = address.read()?.parse().map_err(|_| Code::INVALID_ARGUMENT)?;
    if address.function() != 0 {
        return Err(Code::INVALID_ARGUMENT);
    }
    Ok(session.gpus.iter().find(|gpu| gpu.entry.pci == address))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId(address: Text, device: Out<'_, nvmlDevice_t>) -> nvmlReturn_t {
    found(
        |session| at_address(session, &address),
        |session, gpu| hand_out(session, gpu, Code::NOT_FOUND, device),
    )
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(address: Text, device: Out<'_, nvmlDevice_t>) -> nvmlReturn_t {
    found(
        |session| at_address(session, &address),
        |session, gpu| hand_out(session, gpu, Code::NOT_FOUND, device),
    )
}
