//! Compute instances of a GPU instance: what fits, made, found and removed.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    nvmlComputeInstanceInfo_t, nvmlComputeInstancePlacement_t, nvmlComputeInstanceProfileInfo_t,
    nvmlComputeInstanceProfileInfo_v2_t, nvmlComputeInstanceProfileInfo_v3_t, nvmlReturn_t,
};

use super::report;
use crate::{
    mig::{compute_profile, compute_slices, compute_starts},
    nvml::{
        abi::{ComputeHandle, Handle, InOut, InstanceHandle, List, MigPlace, Out, field, put, version_of},
        code::{Answer, Code},
        session::{Instance, MigDevice, Session, on_compute, on_instance},
    },
};

/// The slices of a compute instance profile of a GPU instance. One that the driver does not know is an invalid argument,
/// one that the instance does not offer is not supported.
fn slices(session: &Session, instance: &Instance<'_>, profile: c_uint) -> Answer<u32> {
    if profile >= session.driver.compute_instance_profiles() {
        return Err(Code::INVALID_ARGUMENT);
    }
    let slices = compute_slices(profile).ok_or(Code::NOT_SUPPORTED)?;
    if compute_starts(instance.profile.slices, slices).is_empty() {
        return Err(Code::NOT_SUPPORTED);
    }
    Ok(slices)
}

/// Writes what the versions have in common.
macro_rules! fill {
    ($info:expr, $instance:expr, $profile:expr, $slices:expr) => {{
        let gpu_profile = $instance.profile;
        let most = compute_starts(gpu_profile.slices, $slices).len();
        $info.id = $profile;
        $info.sliceCount = $slices;
        $info.instanceCount = u32::try_from(most).map_err(|_| Code::UNKNOWN)?;
        $info.multiprocessorCount = $instance.table.multiprocessors($slices);
        $info.sharedCopyEngineCount = gpu_profile.copy_engines;
        $info.sharedDecoderCount = gpu_profile.decoders;
        $info.sharedEncoderCount = gpu_profile.encoders;
        $info.sharedJpegCount = gpu_profile.jpeg;
        $info.sharedOfaCount = gpu_profile.ofa;
    }};
}

/// The only engine profile is `NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED`.
fn check_engines(engines: c_uint) -> Answer {
    if engines == 0 {
        Ok(())
    } else {
        Err(Code::INVALID_ARGUMENT)
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
    instance: InstanceHandle,
    profile: c_uint,
    engines: c_uint,
    info: InOut<'_, nvmlComputeInstanceProfileInfo_t>,
) -> nvmlReturn_t {
    on_instance(instance, |instance, session| {
        let info = info.ok_or(Code::INVALID_ARGUMENT)?;
        check_engines(engines)?;
        let slices = slices(session, &instance, profile)?;
        fill!(info, instance, profile, slices);
        Ok(())
    })
}

/// A pointer to version 2 or 3 of the structure; the version in its first field tells which.
#[repr(transparent)]
struct VersionedInfo(*mut c_uint);

#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    instance: InstanceHandle,
    profile: c_uint,
    engines: c_uint,
    info: VersionedInfo,
) -> nvmlReturn_t {
    on_instance(instance, |instance, session| {
        if info.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        check_engines(engines)?;
        let slices = slices(session, &instance, profile)?;
        let total = instance.gpu.board.memory.total_bytes;
        let name = format!("MIG {}", instance.profile.name(slices, total));
        // SAFETY: it is not null, and the caller gives a structure that starts with its version.
        let version = unsafe { info.0.read() };
        // The function came with version 2; version 3 came with driver 550.
        let knows_3 = session.driver.is_at_least(550);
        if version == version_of::<nvmlComputeInstanceProfileInfo_v2_t>(2) {
            // SAFETY: by its version the structure behind the pointer is this one, and every bit pattern is a value.
            let info = unsafe { &mut *info.0.cast::<nvmlComputeInstanceProfileInfo_v2_t>() };
            fill!(info, instance, profile, slices);
            info.name = field(&name);
        } else if knows_3 && version == version_of::<nvmlComputeInstanceProfileInfo_v3_t>(3) {
            // SAFETY: by its version the structure behind the pointer is this one, and every bit pattern is a value.
            let info = unsafe { &mut *info.0.cast::<nvmlComputeInstanceProfileInfo_v3_t>() };
            fill!(info, instance, profile, slices);
            info.name = field(&name);
            info.capabilities = instance.profile.is_gfx().into(); // NVML_COMPUTE_INSTANCE_PROFILE_CAPS_GFX is 1
        } else {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceGetComputeInstanceRemainingCapacity(
    instance: InstanceHandle,
    profile: c_uint,
    count: Out<'_, c_uint>,
) -> nvmlReturn_t {
    on_instance(instance, |instance, session| {
        let slices = slices(session, &instance, profile)?;
        let free = instance.state.free(instance.table, slices).len();
        put(count, u32::try_from(free).map_err(|_| Code::UNKNOWN)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceGetComputeInstancePossiblePlacements(
    instance: InstanceHandle,
    profile: c_uint,
    list: List<nvmlComputeInstancePlacement_t>,
    count: InOut<'_, c_uint>,
) -> nvmlReturn_t {
    on_instance(instance, |instance, session| {
        let size = slices(session, &instance, profile)?;
        let placements = compute_starts(instance.profile.slices, size)
            .into_iter()
            .map(|start| nvmlComputeInstancePlacement_t { start, size })
            .collect();
        list.fill(count, placements, true)
    })
}

fn create(
    session: &Session,
    instance: Instance<'_>,
    profile: c_uint,
    start: Option<u32>,
    out: Out<'_, ComputeHandle>,
) -> Answer {
    let out = out.ok_or(Code::INVALID_ARGUMENT)?;
    let Instance { gpu, table, state, .. } = instance;
    let slices = slices(session, &instance, profile)?;
    let made = session.change(gpu, |record| {
        record
            .mig
            .create_compute(table, state.id, slices, start)
            .map_err(Code::from)
    })?;
    report(session, gpu);
    let place = MigPlace {
        slot: gpu.slot,
        instance: state.id,
        compute: made.id,
    };
    put(Some(out), ComputeHandle::of(place))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceCreateComputeInstance(
    instance: InstanceHandle,
    profile: c_uint,
    compute: Out<'_, ComputeHandle>,
) -> nvmlReturn_t {
    on_instance(instance, |instance, session| {
        create(session, instance, profile, None, compute)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceCreateComputeInstanceWithPlacement(
    instance: InstanceHandle,
    profile: c_uint,
    placement: Option<&nvmlComputeInstancePlacement_t>,
    compute: Out<'_, ComputeHandle>,
) -> nvmlReturn_t {
    on_instance(instance, |instance, session| {
        let placement = placement.ok_or(Code::INVALID_ARGUMENT)?;
        if compute_slices(profile) != Some(placement.size) {
            return Err(Code::INVALID_ARGUMENT);
        }
        create(session, instance, profile, Some(placement.start), compute)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlComputeInstanceDestroy(compute: ComputeHandle) -> nvmlReturn_t {
    on_compute(compute, |device, session| {
        session.change(device.gpu, |record| {
            let used = record.used();
            record
                .mig
                .destroy_compute(device.instance.id, device.compute.id, &used)
                .map_err(Code::from)
        })?;
        report(session, device.gpu);
        Ok(())
    })
}

/// The caller gives room for as many as the profile allows in this instance; there are never more.
#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceGetComputeInstances(
    instance: InstanceHandle,
    profile: c_uint,
    list: List<ComputeHandle>,
    count: Out<'_, c_uint>,
) -> nvmlReturn_t {
    on_instance(instance, |instance, session| {
        let count = count.ok_or(Code::INVALID_ARGUMENT)?;
        if list.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        let slices = slices(session, &instance, profile)?;
        let found: Vec<ComputeHandle> = instance
            .state
            .compute
            .iter()
            .filter(|compute| compute.slices == slices)
            .take(compute_starts(instance.profile.slices, slices).len())
            .map(|compute| {
                ComputeHandle::of(MigPlace {
                    slot: instance.gpu.slot,
                    instance: instance.state.id,
                    compute: compute.id,
                })
            })
            .collect();
        count.write(u32::try_from(found.len()).map_err(|_| Code::UNKNOWN)?);
        // SAFETY: the caller gives room for as many as the profile allows, and no more are left.
        unsafe { list.write(found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlGpuInstanceGetComputeInstanceById(
    instance: InstanceHandle,
    id: c_uint,
    compute: Out<'_, ComputeHandle>,
) -> nvmlReturn_t {
    on_instance(instance, |instance, _| {
        let out = compute.ok_or(Code::INVALID_ARGUMENT)?;
        if instance.state.compute.iter().all(|compute| compute.id != id) {
            return Err(Code::NOT_FOUND);
        }
        let place = MigPlace {
            slot: instance.gpu.slot,
            instance: instance.state.id,
            compute: id,
        };
        put(Some(out), ComputeHandle::of(place))
    })
}

/// The device is the GPU in the first version, the MIG device in the second.
fn info(device: &MigDevice<'_>, whole: bool, info: Out<'_, nvmlComputeInstanceInfo_t>) -> Answer {
    let handle = if whole {
        device.gpu.handle
    } else {
        Handle::of_mig(device.place())
    };
    let value = nvmlComputeInstanceInfo_t {
        device: handle.raw(),
        gpuInstance: InstanceHandle::of(device.gpu.slot, device.instance.id).raw(),
        id: device.compute.id,
        profileId: compute_profile(device.compute.slices).ok_or(Code::UNKNOWN)?,
        placement: nvmlComputeInstancePlacement_t {
            start: device.compute.start,
            size: device.compute.slices,
        },
    };
    put(info, value)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlComputeInstanceGetInfo(
    compute: ComputeHandle,
    out: Out<'_, nvmlComputeInstanceInfo_t>,
) -> nvmlReturn_t {
    on_compute(compute, |device, _| info(&device, true, out))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlComputeInstanceGetInfo_v2(
    compute: ComputeHandle,
    out: Out<'_, nvmlComputeInstanceInfo_t>,
) -> nvmlReturn_t {
    on_compute(compute, |device, _| info(&device, false, out))
}
