//! NVML as one process of a node calls it, MIG above all.
#![expect(unsafe_code, reason = "calls the C ABI as C does")]

use std::{
    ffi::{CStr, c_char, c_uint},
    path::Path,
    ptr::null_mut,
};

use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlComputeInstance_t, nvmlComputeInstanceInfo_t, nvmlDevice_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t,
    nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t,
};

/// Return codes.
pub(crate) const INVALID_ARGUMENT: c_uint = 2;
pub(crate) const NOT_SUPPORTED: c_uint = 3;
pub(crate) const NOT_FOUND: c_uint = 6;
pub(crate) const GPU_IS_LOST: c_uint = 15;
pub(crate) const IN_USE: c_uint = 19;
pub(crate) const INSUFFICIENT_RESOURCES: c_uint = 23;
pub(crate) const ARGUMENT_VERSION_MISMATCH: c_uint = 25;

/// Calls a function of the library.
macro_rules! call {
    ($lib:expr, $name:ident $(, $argument:expr)*) => {{
        let lib: &nvml_wrapper_sys::bindings::NvmlLib = &$lib;
        // SAFETY: the arguments are of the C function's types, each pointer is null or points to a value that is there
        // until the statement ends, and every length is that of its buffer or less.
        unsafe { lib.$name($($argument),*) }
    }};
}

pub(crate) use call;

/// A value that C fills in.
pub(crate) fn zeroed<T>() -> T {
    // SAFETY: it is used for structures of numbers, pointers and characters alone, for which all zeros are a value.
    unsafe { std::mem::zeroed() }
}

/// One process's view of a node.
pub(crate) struct Driver {
    pub(crate) lib: NvmlLib,
}

impl Driver {
    /// Each call needs a library of its own, as each process has.
    pub(crate) fn load(library: &Path) -> Self {
        // SAFETY: the library has no initialiser and was built with this test.
        let lib = unsafe { NvmlLib::new(library) }.expect("the library loads");
        assert_eq!(call!(lib, nvmlInit_v2), 0);
        Self { lib }
    }

    pub(crate) fn gpu(&self, index: c_uint) -> nvmlDevice_t {
        let mut device = null_mut();
        assert_eq!(
            call!(self.lib, nvmlDeviceGetHandleByIndex_v2, index, &raw mut device),
            0
        );
        device
    }

    pub(crate) fn set_mode(&self, gpu: nvmlDevice_t, mode: c_uint) -> (c_uint, c_uint) {
        let mut activation = 99;
        let code = call!(self.lib, nvmlDeviceSetMigMode, gpu, mode, &raw mut activation);
        (code, activation)
    }

    pub(crate) fn mode(&self, gpu: nvmlDevice_t) -> (c_uint, c_uint) {
        let (mut current, mut pending) = (9, 9);
        let code = call!(self.lib, nvmlDeviceGetMigMode, gpu, &raw mut current, &raw mut pending);
        assert_eq!(code, 0);
        (current, pending)
    }

    pub(crate) fn profile(&self, gpu: nvmlDevice_t, constant: c_uint) -> Result<nvmlGpuInstanceProfileInfo_t, c_uint> {
        let mut info = zeroed();
        match call!(
            self.lib,
            nvmlDeviceGetGpuInstanceProfileInfo,
            gpu,
            constant,
            &raw mut info
        ) {
            0 => Ok(info),
            code => Err(code),
        }
    }

    pub(crate) fn create(
        &self,
        gpu: nvmlDevice_t,
        profile: c_uint,
        start: Option<(c_uint, c_uint)>,
    ) -> Result<nvmlGpuInstance_t, c_uint> {
        let mut instance = null_mut();
        let out = &raw mut instance;
        let code = match start {
            None => call!(self.lib, nvmlDeviceCreateGpuInstance, gpu, profile, out),
            Some((start, size)) => {
                let placement = nvmlGpuInstancePlacement_t { start, size };
                let at = &raw const placement;
                call!(
                    self.lib,
                    nvmlDeviceCreateGpuInstanceWithPlacement,
                    gpu,
                    profile,
                    at,
                    out
                )
            }
        };
        if code == 0 { Ok(instance) } else { Err(code) }
    }

    pub(crate) fn create_compute(
        &self,
        instance: nvmlGpuInstance_t,
        profile: c_uint,
    ) -> Result<nvmlComputeInstance_t, c_uint> {
        let mut compute = null_mut();
        match call!(
            self.lib,
            nvmlGpuInstanceCreateComputeInstance,
            instance,
            profile,
            &raw mut compute
        ) {
            0 => Ok(compute),
            code => Err(code),
        }
    }

    pub(crate) fn info(&self, instance: nvmlGpuInstance_t) -> Result<nvmlGpuInstanceInfo_t, c_uint> {
        let mut info = zeroed();
        match call!(self.lib, nvmlGpuInstanceGetInfo, instance, &raw mut info) {
            0 => Ok(info),
            code => Err(code),
        }
    }

    pub(crate) fn compute_info(&self, compute: nvmlComputeInstance_t) -> Result<nvmlComputeInstanceInfo_t, c_uint> {
        let mut info = zeroed();
        match call!(self.lib, nvmlComputeInstanceGetInfo_v2, compute, &raw mut info) {
            0 => Ok(info),
            code => Err(code),
        }
    }

    pub(crate) fn name(&self, device: nvmlDevice_t) -> String {
        let mut text = [0; 96];
        assert_eq!(call!(self.lib, nvmlDeviceGetName, device, text.as_mut_ptr(), 96), 0);
        read(&text)
    }

    pub(crate) fn uuid(&self, device: nvmlDevice_t) -> String {
        let mut text = [0; 96];
        assert_eq!(call!(self.lib, nvmlDeviceGetUUID, device, text.as_mut_ptr(), 96), 0);
        read(&text)
    }

    pub(crate) fn by_uuid(&self, uuid: &str) -> Result<nvmlDevice_t, c_uint> {
        let (text, mut device) = (
            std::ffi::CString::new(uuid).expect("C hands over what it says"),
            null_mut(),
        );
        match call!(self.lib, nvmlDeviceGetHandleByUUID, text.as_ptr(), &raw mut device) {
            0 => Ok(device),
            code => Err(code),
        }
    }

    pub(crate) fn mig_devices(&self, gpu: nvmlDevice_t) -> Vec<nvmlDevice_t> {
        let mut count = 0;
        assert_eq!(call!(self.lib, nvmlDeviceGetMaxMigDeviceCount, gpu, &raw mut count), 0);
        let find = |index| {
            let mut device = null_mut();
            match call!(
                self.lib,
                nvmlDeviceGetMigDeviceHandleByIndex,
                gpu,
                index,
                &raw mut device
            ) {
                0 => Some(device),
                code => {
                    assert_eq!(code, NOT_FOUND);
                    None
                }
            }
        };
        (0..count).filter_map(find).collect()
    }

    /// Every GPU instance as (id, profile id, start, size), by id; what the profiles list together.
    pub(crate) fn instances(&self, gpu: nvmlDevice_t) -> Vec<(u32, u32, u32, u32)> {
        let mut all = Vec::new();
        for constant in 0..17 {
            let Ok(profile) = self.profile(gpu, constant) else {
                continue;
            };
            let (mut list, mut count) = ([null_mut(); 16], 0);
            let out = list.as_mut_ptr();
            let code = call!(
                self.lib,
                nvmlDeviceGetGpuInstances,
                gpu,
                profile.id,
                out,
                &raw mut count
            );
            assert_eq!(code, 0);
            for &instance in &list[..count as usize] {
                let info = self.info(instance).expect("C hands over what it says");
                all.push((info.id, info.profileId, info.placement.start, info.placement.size));
            }
        }
        all.sort_unstable();
        all
    }
}

pub(crate) fn read(text: &[c_char]) -> String {
    // SAFETY: the library ended the text with a zero, as the call's success says.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    text.to_str().expect("C hands over what it says").to_owned()
}

pub(crate) const fn version(version: c_uint, size: usize) -> c_uint {
    #[expect(clippy::cast_possible_truncation, reason = "structures are small")]
    let size = size as c_uint;
    size | version << 24
}
