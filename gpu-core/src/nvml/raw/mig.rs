//! GPU instances and compute instances: what a board offers, what exists, making and unmaking.

use std::ffi::c_uint;

use nvml_wrapper::{
    Device,
    error::{NvmlError, nvml_sym, nvml_try},
};
use nvml_wrapper_sys::bindings::{
    nvmlComputeInstance_t, nvmlComputeInstanceInfo_t, nvmlComputeInstancePlacement_t, nvmlComputeInstanceProfileInfo_t,
    nvmlDeviceAttributes_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t,
    nvmlGpuInstanceProfileInfo_t, nvmlGpuInstanceProfileInfo_v2_t, nvmlGpuInstanceProfileInfo_v3_t,
};

use super::{Handle, is_other_version, listed, text, version_of};

/// The constants that NVML 13 knows, `NVML_GPU_INSTANCE_PROFILE_*`. A driver refuses those that it does not know.
pub(in crate::nvml) const GPU_INSTANCE_PROFILES: std::ops::Range<u32> = 0..0x12;

/// `NVML_COMPUTE_INSTANCE_PROFILE_*`.
pub(in crate::nvml) const COMPUTE_INSTANCE_PROFILES: std::ops::Range<u32> = 0..9;

/// Room for a profile's instances: for as many as it says it has, and more than any GPU has should it say less.
fn room(max: u32) -> usize {
    const LEAST: u32 = 64;
    const MOST: u32 = 1024;
    max.clamp(LEAST, MOST) as usize
}

/// The only engine profile there is, `NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED`.
const SHARED_ENGINES: c_uint = 0;

/// The first version of the struct, which every driver with MIG knows.
pub(in crate::nvml) fn gpu_instance_profile(
    device: &Device<'_>,
    constant: u32,
) -> Result<nvmlGpuInstanceProfileInfo_t, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetGpuInstanceProfileInfo.as_ref())?;
    let mut info = nvmlGpuInstanceProfileInfo_t {
        id: 0,
        isP2pSupported: 0,
        sliceCount: 0,
        instanceCount: 0,
        multiprocessorCount: 0,
        copyEngineCount: 0,
        decoderCount: 0,
        encoderCount: 0,
        jpegCount: 0,
        ofaCount: 0,
        memorySizeMB: 0,
    };
    let handle = Handle::of(device).0;
    // SAFETY: the handle is NVML's own, and `info` is a valid place for the struct of this version of the call.
    nvml_try(unsafe { call(handle, constant, &raw mut info) })?;
    Ok(info)
}

/// What the later versions of the struct add: the driver's name, if it gives one, and whether the instance can draw.
pub(in crate::nvml) fn gpu_instance_profile_extras(
    device: &Device<'_>,
    constant: u32,
) -> Result<(Option<String>, Option<bool>), NvmlError> {
    const GRAPHICS: u32 = 2; // NVML_GPU_INSTANCE_PROFILE_CAPS_GFX
    let named = |name: String| Some(name).filter(|name| !name.is_empty());
    match profile_v3(device, constant) {
        Ok(info) => {
            // A driver may leave the name of this version empty (580.159 on an H200) and fill that of the second.
            let name = match named(text(&info.name)) {
                None => profile_v2(device, constant)
                    .ok()
                    .and_then(|info| named(text(&info.name))),
                name => name,
            };
            Ok((name, Some(info.capabilities & GRAPHICS != 0)))
        }
        Err(error) if is_other_version(&error) => {
            profile_v2(device, constant).map(|info| (named(text(&info.name)), None))
        }
        Err(error) => Err(error),
    }
}

fn profile_v2(device: &Device<'_>, constant: u32) -> Result<nvmlGpuInstanceProfileInfo_v2_t, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetGpuInstanceProfileInfoV.as_ref())?;
    let mut info = nvmlGpuInstanceProfileInfo_v2_t {
        version: version_of::<nvmlGpuInstanceProfileInfo_v2_t>(2),
        id: 0,
        isP2pSupported: 0,
        sliceCount: 0,
        instanceCount: 0,
        multiprocessorCount: 0,
        copyEngineCount: 0,
        decoderCount: 0,
        encoderCount: 0,
        jpegCount: 0,
        ofaCount: 0,
        memorySizeMB: 0,
        name: [0; 96],
    };
    let handle = Handle::of(device).0;
    // SAFETY: the handle is NVML's own, and `info` is a valid place for the version of the struct that it says it is.
    nvml_try(unsafe { call(handle, constant, &raw mut info) })?;
    Ok(info)
}

fn profile_v3(device: &Device<'_>, constant: u32) -> Result<nvmlGpuInstanceProfileInfo_v3_t, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetGpuInstanceProfileInfoV.as_ref())?;
    let mut info = nvmlGpuInstanceProfileInfo_v3_t {
        version: version_of::<nvmlGpuInstanceProfileInfo_v3_t>(3),
        id: 0,
        sliceCount: 0,
        instanceCount: 0,
        multiprocessorCount: 0,
        copyEngineCount: 0,
        decoderCount: 0,
        encoderCount: 0,
        jpegCount: 0,
        ofaCount: 0,
        memorySizeMB: 0,
        name: [0; 96],
        capabilities: 0,
    };
    let handle = Handle::of(device).0;
    // SAFETY: the handle is NVML's own, and `info` is a valid place for the version of the struct that it says it is: the
    // driver reads the version first and writes no further than that version's end.
    nvml_try(unsafe { call(handle, constant, (&raw mut info).cast()) })?;
    Ok(info)
}

/// Where instances of a profile can lie on an empty GPU.
pub(in crate::nvml) fn gpu_instance_placements(
    device: &Device<'_>,
    profile_id: u32,
) -> Result<Vec<nvmlGpuInstancePlacement_t>, NvmlError> {
    let lib = device.nvml().lib();
    // The first version (470) has the same arguments, where the second is absent.
    let call = nvml_sym(lib.nvmlDeviceGetGpuInstancePossiblePlacements_v2.as_ref())
        .or_else(|_| nvml_sym(lib.nvmlDeviceGetGpuInstancePossiblePlacements.as_ref()))?;
    let handle = Handle::of(device).0;
    let empty = nvmlGpuInstancePlacement_t { start: 0, size: 0 };
    let count = |count: &mut c_uint| {
        // SAFETY: the handle is NVML's own; without an array the call only counts.
        nvml_try(unsafe { call(handle, profile_id, std::ptr::null_mut(), count) })
    };
    let fill = |array: &mut [nvmlGpuInstancePlacement_t], count: &mut c_uint| {
        // SAFETY: the handle is NVML's own, and the array has as many places as `count` says.
        nvml_try(unsafe { call(handle, profile_id, array.as_mut_ptr(), count) })
    };
    listed(empty, count, fill)
}

/// A GPU instance that exists, or did when it was looked up. NVML finds it by value, so one that is gone is an error of
/// the next call and no danger.
#[derive(Clone, Copy)]
pub(in crate::nvml) struct GpuInstance<'d> {
    device: &'d Device<'d>,
    handle: nvmlGpuInstance_t,
}

impl<'d> GpuInstance<'d> {
    /// Those of one profile; `max` is the profile's `instanceCount`.
    pub(in crate::nvml) fn list(device: &'d Device<'d>, profile_id: u32, max: u32) -> Result<Vec<Self>, NvmlError> {
        let call = nvml_sym(device.nvml().lib().nvmlDeviceGetGpuInstances.as_ref())?;
        let mut handles = vec![std::ptr::null_mut(); room(max)];
        let mut count = max;
        let handle = Handle::of(device).0;
        // SAFETY: the handle is NVML's own, and the array has as many places as the profile has instances at most.
        nvml_try(unsafe { call(handle, profile_id, handles.as_mut_ptr(), &raw mut count) })?;
        handles.truncate(count as usize);
        Ok(handles.into_iter().map(|handle| Self { device, handle }).collect())
    }

    pub(in crate::nvml) fn by_id(device: &'d Device<'d>, id: u32) -> Result<Self, NvmlError> {
        let call = nvml_sym(device.nvml().lib().nvmlDeviceGetGpuInstanceById.as_ref())?;
        let mut instance = std::ptr::null_mut();
        let handle = Handle::of(device).0;
        // SAFETY: the handle is NVML's own, and `instance` is a valid place for one handle.
        nvml_try(unsafe { call(handle, id, &raw mut instance) })?;
        Ok(Self {
            device,
            handle: instance,
        })
    }

    /// Makes one there.
    pub(in crate::nvml) fn create(
        device: &'d Device<'d>,
        profile_id: u32,
        placement: nvmlGpuInstancePlacement_t,
    ) -> Result<Self, NvmlError> {
        let call = nvml_sym(device.nvml().lib().nvmlDeviceCreateGpuInstanceWithPlacement.as_ref())?;
        let handle = Handle::of(device).0;
        let mut instance = std::ptr::null_mut();
        // SAFETY: the handle is NVML's own; `placement` is read and `instance` written during the call alone.
        nvml_try(unsafe { call(handle, profile_id, &raw const placement, &raw mut instance) })?;
        Ok(Self {
            device,
            handle: instance,
        })
    }

    pub(in crate::nvml) fn destroy(self) -> Result<(), NvmlError> {
        let call = nvml_sym(self.device.nvml().lib().nvmlGpuInstanceDestroy.as_ref())?;
        // SAFETY: the handle is NVML's own.
        nvml_try(unsafe { call(self.handle) })
    }

    pub(in crate::nvml) fn info(self) -> Result<nvmlGpuInstanceInfo_t, NvmlError> {
        let call = nvml_sym(self.device.nvml().lib().nvmlGpuInstanceGetInfo.as_ref())?;
        let mut info = nvmlGpuInstanceInfo_t {
            device: std::ptr::null_mut(),
            id: 0,
            profileId: 0,
            placement: nvmlGpuInstancePlacement_t { start: 0, size: 0 },
        };
        // SAFETY: the handle is NVML's own, and `info` is a valid place for the struct.
        nvml_try(unsafe { call(self.handle, &raw mut info) })?;
        Ok(info)
    }

    /// A kind of compute instance that fits into this GPU instance.
    pub(in crate::nvml) fn compute_profile(self, constant: u32) -> Result<nvmlComputeInstanceProfileInfo_t, NvmlError> {
        let lib = self.device.nvml().lib();
        let call = nvml_sym(lib.nvmlGpuInstanceGetComputeInstanceProfileInfo.as_ref())?;
        let mut info = nvmlComputeInstanceProfileInfo_t {
            id: 0,
            sliceCount: 0,
            instanceCount: 0,
            multiprocessorCount: 0,
            sharedCopyEngineCount: 0,
            sharedDecoderCount: 0,
            sharedEncoderCount: 0,
            sharedJpegCount: 0,
            sharedOfaCount: 0,
        };
        // SAFETY: the handle is NVML's own, and `info` is a valid place for the struct of this version of the call.
        nvml_try(unsafe { call(self.handle, constant, SHARED_ENGINES, &raw mut info) })?;
        Ok(info)
    }
}

/// A compute instance that exists, or did when it was looked up.
#[derive(Clone, Copy)]
pub(in crate::nvml) struct ComputeInstance<'d> {
    device: &'d Device<'d>,
    handle: nvmlComputeInstance_t,
}

impl<'d> ComputeInstance<'d> {
    /// Those of one profile in a GPU instance; `max` is the profile's `instanceCount`.
    pub(in crate::nvml) fn list(parent: GpuInstance<'d>, profile_id: u32, max: u32) -> Result<Vec<Self>, NvmlError> {
        let device = parent.device;
        let call = nvml_sym(device.nvml().lib().nvmlGpuInstanceGetComputeInstances.as_ref())?;
        let mut handles = vec![std::ptr::null_mut(); room(max)];
        let mut count = max;
        // SAFETY: the handle is NVML's own, and the array has as many places as the profile has instances at most.
        nvml_try(unsafe { call(parent.handle, profile_id, handles.as_mut_ptr(), &raw mut count) })?;
        handles.truncate(count as usize);
        Ok(handles.into_iter().map(|handle| Self { device, handle }).collect())
    }

    pub(in crate::nvml) fn by_id(parent: GpuInstance<'d>, id: u32) -> Result<Self, NvmlError> {
        let lib = parent.device.nvml().lib();
        let call = nvml_sym(lib.nvmlGpuInstanceGetComputeInstanceById.as_ref())?;
        let mut instance = std::ptr::null_mut();
        // SAFETY: the handle is NVML's own, and `instance` is a valid place for one handle.
        nvml_try(unsafe { call(parent.handle, id, &raw mut instance) })?;
        Ok(Self {
            device: parent.device,
            handle: instance,
        })
    }

    pub(in crate::nvml) fn create(
        parent: GpuInstance<'d>,
        profile_id: u32,
        placement: Option<nvmlComputeInstancePlacement_t>,
    ) -> Result<Self, NvmlError> {
        let lib = parent.device.nvml().lib();
        let mut instance = std::ptr::null_mut();
        if let Some(placement) = placement {
            let call = nvml_sym(lib.nvmlGpuInstanceCreateComputeInstanceWithPlacement.as_ref())?;
            // SAFETY: the handle is NVML's own; `placement` is read and `instance` written during the call alone.
            nvml_try(unsafe { call(parent.handle, profile_id, &raw const placement, &raw mut instance) })?;
        } else {
            let call = nvml_sym(lib.nvmlGpuInstanceCreateComputeInstance.as_ref())?;
            // SAFETY: the handle is NVML's own, and `instance` is a valid place for one handle.
            nvml_try(unsafe { call(parent.handle, profile_id, &raw mut instance) })?;
        }
        Ok(Self {
            device: parent.device,
            handle: instance,
        })
    }

    pub(in crate::nvml) fn destroy(self) -> Result<(), NvmlError> {
        let call = nvml_sym(self.device.nvml().lib().nvmlComputeInstanceDestroy.as_ref())?;
        // SAFETY: the handle is NVML's own.
        nvml_try(unsafe { call(self.handle) })
    }

    /// The MIG device that it is, by what its information says.
    pub(in crate::nvml) fn device(self, info: &nvmlComputeInstanceInfo_t) -> Device<'d> {
        Handle(info.device).device(self.device.nvml())
    }

    pub(in crate::nvml) fn info(self) -> Result<nvmlComputeInstanceInfo_t, NvmlError> {
        let call = nvml_sym(self.device.nvml().lib().nvmlComputeInstanceGetInfo_v2.as_ref())?;
        let mut info = nvmlComputeInstanceInfo_t {
            device: std::ptr::null_mut(),
            gpuInstance: std::ptr::null_mut(),
            id: 0,
            profileId: 0,
            placement: nvmlComputeInstancePlacement_t { start: 0, size: 0 },
        };
        // SAFETY: the handle is NVML's own, and `info` is a valid place for the struct of this version of the call.
        nvml_try(unsafe { call(self.handle, &raw mut info) })?;
        Ok(info)
    }
}

/// The GPU instance that a MIG device belongs to.
pub(in crate::nvml) fn gpu_instance_id(mig_device: &Device<'_>) -> Result<u32, NvmlError> {
    let call = nvml_sym(mig_device.nvml().lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
    let mut id = 0;
    let handle = Handle::of(mig_device).0;
    // SAFETY: the handle is NVML's own, and `id` is a valid place for one number.
    nvml_try(unsafe { call(handle, &raw mut id) })?;
    Ok(id)
}

/// The compute instance that a MIG device is.
pub(in crate::nvml) fn compute_instance_id(mig_device: &Device<'_>) -> Result<u32, NvmlError> {
    let call = nvml_sym(mig_device.nvml().lib().nvmlDeviceGetComputeInstanceId.as_ref())?;
    let mut id = 0;
    let handle = Handle::of(mig_device).0;
    // SAFETY: the handle is NVML's own, and `id` is a valid place for one number.
    nvml_try(unsafe { call(handle, &raw mut id) })?;
    Ok(id)
}

/// What a MIG device has.
pub(in crate::nvml) fn attributes(mig_device: &Device<'_>) -> Result<nvmlDeviceAttributes_t, NvmlError> {
    let call = nvml_sym(mig_device.nvml().lib().nvmlDeviceGetAttributes_v2.as_ref())?;
    let mut attributes = nvmlDeviceAttributes_t {
        multiprocessorCount: 0,
        sharedCopyEngineCount: 0,
        sharedDecoderCount: 0,
        sharedEncoderCount: 0,
        sharedJpegCount: 0,
        sharedOfaCount: 0,
        gpuInstanceSliceCount: 0,
        computeInstanceSliceCount: 0,
        memorySizeMB: 0,
    };
    let handle = Handle::of(mig_device).0;
    // SAFETY: the handle is NVML's own, and `attributes` is a valid place for the struct of this version of the call.
    nvml_try(unsafe { call(handle, &raw mut attributes) })?;
    Ok(attributes)
}

/// Asks for a MIG mode; the number is what activating it met, 0 for nothing (`activationStatus`).
pub(in crate::nvml) fn set_mode(device: &Device<'_>, enabled: bool) -> Result<u32, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceSetMigMode.as_ref())?;
    let mut activation = 0;
    let handle = Handle::of(device).0;
    // SAFETY: the handle is NVML's own, and `activation` is a valid place for one return code.
    nvml_try(unsafe { call(handle, u32::from(enabled), &raw mut activation) })?;
    Ok(activation)
}
