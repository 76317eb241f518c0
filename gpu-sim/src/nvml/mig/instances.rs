//! GPU instances: made, found and removed.

use std::ffi::{c_uint, c_void};

use nvml_wrapper_sys::bindings::{nvmlGpuInstance_t, nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t, nvmlReturn_t};

use super::{profiles::by_id, report, table};
use crate::nvml::{
    abi::{Handle, InstanceHandle, List, Out, put},
    code::{Answer, Code},
    session::{Gpu, Instance, Session, on, on_instance},
};

fn create(gpu: &Gpu, session: &Session, id: c_uint, start: Option<u32>, out: Out<'_, nvmlGpuInstance_t>) -> Answer {
    let out = out.ok_or(Code::INVALID_ARGUMENT)?;
    let table = table(gpu)?;
    let profile = by_id(gpu, session, id)?;
    let made = session.change(gpu, |record| {
        record.mig.create(table, profile, start).map_err(Code::from)
    })?;
    report(session, gpu);
    put(Some(out), InstanceHandle::of(gpu.slot, made.id).raw())
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceCreateGpuInstance(
    device: Handle,
    id: c_uint,
    instance: Out<'_, nvmlGpuInstance_t>,
) -> nvmlReturn_t {
    on(device, |gpu, session| create(gpu, session, id, None, instance))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceCreateGpuInstanceWithPlacement(
    device: Handle,
    id: c_uint,
    placement: Option<&nvmlGpuInstancePlacement_t>,
    instance: Out<'_, nvmlGpuInstance_t>,
) -> nvmlReturn_t {
    on(device, |gpu, session| {
        let placement = placement.ok_or(Code::INVALID_ARGUMENT)?;
        if by_id(gpu, session, id)?.size != placement.size {
            return Err(Code::INVALID_ARGUMENT);
        }
        create(gpu, session, id, Some(placement.start), instance)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceDestroy(instance: InstanceHandle) -> nvmlReturn_t {
    on_instance(instance, |Instance { gpu, state, .. }, session| {
        session.change(gpu, |record| record.mig.destroy(state.id).map_err(Code::from))?;
        report(session, gpu);
        Ok(())
    })
}

/// The caller gives room for as many instances as the profile allows; there are never more.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstances(
    device: Handle,
    id: c_uint,
    list: List<nvmlGpuInstance_t>,
    count: Out<'_, c_uint>,
) -> nvmlReturn_t {
    on(device, |gpu, session| {
        let count = count.ok_or(Code::INVALID_ARGUMENT)?;
        if list.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        let profile = by_id(gpu, session, id)?;
        let mig = &session.record(gpu).mig;
        if !mig.mode {
            return Err(Code::NOT_SUPPORTED);
        }
        let found: Vec<nvmlGpuInstance_t> = mig
            .instances
            .iter()
            .filter(|instance| instance.profile == profile.profile)
            .take(profile.instances as usize)
            .map(|instance| InstanceHandle::of(gpu.slot, instance.id).raw())
            .collect();
        count.write(u32::try_from(found.len()).map_err(|_| Code::UNKNOWN)?);
        // SAFETY: the caller gives room for as many instances as the profile allows, and no more are left.
        unsafe { list.write(found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceById(device: Handle, id: c_uint, instance: Out<'_, *mut c_void>) -> nvmlReturn_t {
    on(device, |gpu, session| {
        table(gpu)?;
        let found = session.record(gpu).mig.instance(id);
        let handle = found.map(|found| InstanceHandle::of(gpu.slot, found.id).raw().cast());
        put(instance, handle.unwrap_or(std::ptr::null_mut()))?; // null as measured
        handle.map(|_| ()).ok_or(Code::NOT_FOUND)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceGetInfo(instance: InstanceHandle, info: Out<'_, nvmlGpuInstanceInfo_t>) -> nvmlReturn_t {
    on_instance(instance, |found, _| {
        let value = nvmlGpuInstanceInfo_t {
            device: found.gpu.handle.raw(),
            id: found.state.id,
            profileId: found.profile.id,
            placement: nvmlGpuInstancePlacement_t {
                start: found.state.start,
                size: found.profile.size,
            },
        };
        put(info, value)
    })
}
