//! What GPU instances a board offers, and where.

use std::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t, nvmlGpuInstanceProfileInfo_v2_t,
    nvmlGpuInstanceProfileInfo_v3_t, nvmlReturn_t,
};

use super::table;
use crate::{
    mig::MigProfile,
    nvml::{
        abi::{Handle, InOut, List, Out, field, put, version_of},
        code::{Answer, Code},
        session::{Gpu, Session, on},
    },
};

/// `NVML_GPU_INSTANCE_PROFILE_CAPABILITY_GFX`.
const GFX: c_uint = 2;

/// Before driver 550 a board says what it offers only while MIG mode is on; since then, always (measured with 580).
fn check_told(gpu: &Gpu, session: &Session) -> Answer {
    if session.driver.tells_profiles_always() || session.record(gpu).mig.mode {
        Ok(())
    } else {
        Err(Code::NOT_SUPPORTED)
    }
}

/// The profile with that constant. One that the driver does not know is an invalid argument, one that the board does not
/// offer is not supported (measured).
pub(super) fn by_constant(gpu: &Gpu, session: &Session, constant: c_uint) -> Answer<&'static MigProfile> {
    let table = table(gpu)?;
    check_told(gpu, session)?;
    if constant >= session.driver.gpu_instance_profiles() {
        return Err(Code::INVALID_ARGUMENT);
    }
    table.by_constant(constant).ok_or(Code::NOT_SUPPORTED)
}

/// The profile with that id, if the driver knows it.
pub(super) fn by_id(gpu: &Gpu, session: &Session, id: c_uint) -> Answer<&'static MigProfile> {
    let table = table(gpu)?;
    let profile = table.by_id(id).ok_or(Code::INVALID_ARGUMENT)?;
    if profile.profile < session.driver.gpu_instance_profiles() {
        Ok(profile)
    } else {
        Err(Code::INVALID_ARGUMENT)
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceProfileInfo(
    device: Handle,
    constant: c_uint,
    info: Out<'_, nvmlGpuInstanceProfileInfo_t>,
) -> nvmlReturn_t {
    on(device, |gpu, session| {
        let info = info.ok_or(Code::INVALID_ARGUMENT)?;
        let profile = by_constant(gpu, session, constant)?;
        let value = nvmlGpuInstanceProfileInfo_t {
            id: profile.id,
            isP2pSupported: 0, // measured
            sliceCount: profile.slices,
            instanceCount: profile.instances,
            multiprocessorCount: profile.multiprocessors,
            copyEngineCount: profile.copy_engines,
            decoderCount: profile.decoders,
            encoderCount: profile.encoders,
            jpegCount: profile.jpeg,
            ofaCount: profile.ofa,
            memorySizeMB: profile.memory_mib,
        };
        put(Some(info), value)
    })
}

/// A pointer to version 2 or 3 of the structure, both aligned like this; the version in the first field tells which.
#[repr(transparent)]
struct VersionedInfo(*mut c_ulonglong);

/// Writes what the versions have in common.
macro_rules! fill {
    ($info:expr, $profile:expr, $name:expr) => {{
        $info.id = $profile.id;
        $info.sliceCount = $profile.slices;
        $info.instanceCount = $profile.instances;
        $info.multiprocessorCount = $profile.multiprocessors;
        $info.copyEngineCount = $profile.copy_engines;
        $info.decoderCount = $profile.decoders;
        $info.encoderCount = $profile.encoders;
        $info.jpegCount = $profile.jpeg;
        $info.ofaCount = $profile.ofa;
        $info.memorySizeMB = $profile.memory_mib;
        $info.name = field($name);
    }};
}

impl VersionedInfo {
    fn fill(self, gpu: &Gpu, session: &Session, find: impl FnOnce() -> Answer<&'static MigProfile>) -> Answer {
        if self.0.is_null() {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: it is not null, and the caller gives a structure that starts with its version.
        let version = unsafe { self.0.cast::<c_uint>().read() };
        let name = |profile: &MigProfile| {
            let name = profile.name(profile.slices, gpu.board.memory.total_bytes);
            format!("MIG {name}")
        };
        // The function came with version 2; version 3 came with driver 550.
        let knows_3 = session.driver.is_at_least(550);
        if version == version_of::<nvmlGpuInstanceProfileInfo_v2_t>(2) {
            let profile = find()?;
            // SAFETY: by its version the structure behind the pointer is this one, and every bit pattern is a value.
            let info = unsafe { &mut *self.0.cast::<nvmlGpuInstanceProfileInfo_v2_t>() };
            fill!(info, profile, &name(profile));
            info.isP2pSupported = 0;
            info.version = 0; // measured
        } else if knows_3 && version == version_of::<nvmlGpuInstanceProfileInfo_v3_t>(3) {
            let profile = find()?;
            // SAFETY: by its version the structure behind the pointer is this one, and every bit pattern is a value.
            let info = unsafe { &mut *self.0.cast::<nvmlGpuInstanceProfileInfo_v3_t>() };
            fill!(info, profile, ""); // no name in this version (measured)
            info.capabilities = if profile.is_gfx() { GFX } else { 0 };
        } else {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        Ok(())
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceProfileInfoV(
    device: Handle,
    constant: c_uint,
    info: VersionedInfo,
) -> nvmlReturn_t {
    on(device, |gpu, session| {
        info.fill(gpu, session, || by_constant(gpu, session, constant))
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceProfileInfoByIdV(
    device: Handle,
    id: c_uint,
    info: VersionedInfo,
) -> nvmlReturn_t {
    on(device, |gpu, session| {
        info.fill(gpu, session, || {
            check_told(gpu, session)?;
            by_id(gpu, session, id)
        })
    })
}

fn placements(gpu: &Gpu, session: &Session, id: c_uint) -> Answer<Vec<nvmlGpuInstancePlacement_t>> {
    check_told(gpu, session)?;
    let profile = by_id(gpu, session, id)?;
    let size = profile.size;
    Ok(profile
        .starts
        .iter()
        .map(|&start| nvmlGpuInstancePlacement_t { start, size })
        .collect())
}

/// The first version says nothing of how much room there is, only that it is enough for as many instances as there may
/// be; so no more are written.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstancePossiblePlacements(
    device: Handle,
    id: c_uint,
    list: List<nvmlGpuInstancePlacement_t>,
    count: Out<'_, c_uint>,
) -> nvmlReturn_t {
    on(device, |gpu, session| {
        let count = count.ok_or(Code::INVALID_ARGUMENT)?;
        let mut found = placements(gpu, session, id)?;
        found.truncate(by_id(gpu, session, id)?.instances as usize);
        count.write(u32::try_from(found.len()).map_err(|_| Code::UNKNOWN)?);
        if !list.is_null() {
            // SAFETY: the caller gives room for as many instances as the profile allows, and no more are left.
            unsafe { list.write(found) };
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    device: Handle,
    id: c_uint,
    list: List<nvmlGpuInstancePlacement_t>,
    count: InOut<'_, c_uint>,
) -> nvmlReturn_t {
    on(device, |gpu, session| {
        let count = count.ok_or(Code::INVALID_ARGUMENT)?;
        list.fill(Some(count), placements(gpu, session, id)?, true)
    })
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetGpuInstanceRemainingCapacity(
    device: Handle,
    id: c_uint,
    count: Out<'_, c_uint>,
) -> nvmlReturn_t {
    on(device, |gpu, session| {
        let mig = &session.record(gpu).mig;
        let profile = by_id(gpu, session, id)?;
        if !mig.mode {
            return Err(Code::NOT_SUPPORTED);
        }
        put(count, mig.remaining(table(gpu)?, profile))
    })
}
