//! What this library asks NVML.

use std::{
    ffi::{CStr, OsStr, c_char, c_uint, c_void},
    mem::{MaybeUninit, size_of},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    ptr,
};

use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlDevice_t, nvmlDeviceAttributes_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlProcessInfo_t, nvmlReturn_t,
};

use crate::code::{Answer, Code};

pub(crate) struct Nvml(NvmlLib);

/// A device of NVML's; valid as long as the library is, which never goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle(nvmlDevice_t);

// SAFETY: the address is never followed here, and NVML takes it from any thread.
unsafe impl Send for Handle {}

/// What an NVML function returned, as CUDA's answer.
fn check(code: nvmlReturn_t) -> Answer {
    if code == 0 { Ok(()) } else { Err(Code::of_nvml(code)) }
}

/// Calls an NVML function: `call!(self, name(arguments))`.
macro_rules! call {
    ($nvml:expr, $name:ident($($argument:expr),* $(,)?)) => {{
        // A driver that lacks the function does not support what it is for.
        match &$nvml.0.$name {
            // SAFETY: the arguments are of the types that the function's binding says; each pointer points to a value, or
            // to a buffer of the length given, that is there until the call returns.
            Ok(function) => check(unsafe { function($($argument),*) }),
            Err(_) => Err(Code::NOT_SUPPORTED),
        }
    }};
}

impl Nvml {
    /// Loads the library beside this one, or else the one that the loader finds, and initialises it.
    pub(crate) fn open() -> Answer<Self> {
        let beside = own_path().and_then(|path| Some(path.parent()?.join("libnvidia-ml.so.1")));
        let library = beside
            .filter(|path| path.exists())
            .unwrap_or_else(|| PathBuf::from("libnvidia-ml.so.1"));
        // SAFETY: the driver's library, simulated or not, has no initialiser that minds when it runs.
        let library = unsafe { NvmlLib::new(library) }.map_err(|_| Code::NO_DEVICE)?;
        let nvml = Self(library);
        call!(nvml, nvmlInit_v2())?;
        Ok(nvml)
    }

    pub(crate) fn count(&self) -> Answer<c_uint> {
        let mut count = 0;
        call!(self, nvmlDeviceGetCount_v2(&raw mut count))?;
        Ok(count)
    }

    pub(crate) fn gpu(&self, index: c_uint) -> Answer<Handle> {
        let mut device: nvmlDevice_t = ptr::null_mut();
        call!(self, nvmlDeviceGetHandleByIndex_v2(index, &raw mut device))?;
        Ok(Handle(device))
    }

    /// Whether MIG mode is on; not, where there is none.
    pub(crate) fn mig_mode(&self, gpu: Handle) -> Answer<bool> {
        let (mut current, mut pending) = (0, 0);
        match call!(self, nvmlDeviceGetMigMode(gpu.0, &raw mut current, &raw mut pending)) {
            Err(Code::NOT_SUPPORTED) => Ok(false),
            done => done.map(|()| current == 1),
        }
    }

    pub(crate) fn mig_devices(&self, gpu: Handle) -> Answer<Vec<Handle>> {
        let mut most = 0;
        call!(self, nvmlDeviceGetMaxMigDeviceCount(gpu.0, &raw mut most))?;
        let mut devices = Vec::new();
        for index in 0..most {
            let mut device: nvmlDevice_t = ptr::null_mut();
            if call!(self, nvmlDeviceGetMigDeviceHandleByIndex(gpu.0, index, &raw mut device)).is_ok() {
                devices.push(Handle(device));
            }
        }
        Ok(devices)
    }

    pub(crate) fn uuid(&self, device: Handle) -> Answer<String> {
        let mut text = [0; 96];
        call!(self, nvmlDeviceGetUUID(device.0, text.as_mut_ptr(), length(&text)))?;
        Ok(string(&text))
    }

    pub(crate) fn name(&self, device: Handle) -> Answer<String> {
        let mut text = [0; 96];
        call!(self, nvmlDeviceGetName(device.0, text.as_mut_ptr(), length(&text)))?;
        Ok(string(&text))
    }

    /// Memory that programs can have, in bytes.
    pub(crate) fn memory(&self, device: Handle) -> Answer<u64> {
        let version = u32::try_from(size_of::<nvmlMemory_v2_t>()).unwrap_or(0) | 2 << 24;
        let mut memory = nvmlMemory_v2_t {
            version,
            total: 0,
            reserved: 0,
            free: 0,
            used: 0,
        };
        call!(self, nvmlDeviceGetMemoryInfo_v2(device.0, &raw mut memory))?;
        Ok(memory.total.saturating_sub(memory.reserved))
    }

    pub(crate) fn compute_capability(&self, device: Handle) -> Answer<(i32, i32)> {
        let (mut major, mut minor) = (0, 0);
        call!(
            self,
            nvmlDeviceGetCudaComputeCapability(device.0, &raw mut major, &raw mut minor)
        )?;
        Ok((major, minor))
    }

    pub(crate) fn cores(&self, gpu: Handle) -> Answer<c_uint> {
        let mut cores = 0;
        call!(self, nvmlDeviceGetNumGpuCores(gpu.0, &raw mut cores))?;
        Ok(cores)
    }

    /// Multiprocessors of a MIG device.
    pub(crate) fn multiprocessors(&self, mig: Handle) -> Answer<c_uint> {
        // SAFETY: all zeros are a value of this structure of integers.
        let mut attributes: nvmlDeviceAttributes_t = unsafe { MaybeUninit::zeroed().assume_init() };
        call!(self, nvmlDeviceGetAttributes_v2(mig.0, &raw mut attributes))?;
        Ok(attributes.multiprocessorCount)
    }

    /// `nvmlComputeMode_t`, which has CUDA's numbers.
    pub(crate) fn compute_mode(&self, gpu: Handle) -> Answer<c_uint> {
        let mut mode = 0;
        call!(self, nvmlDeviceGetComputeMode(gpu.0, &raw mut mode))?;
        Ok(mode)
    }

    pub(crate) fn pci(&self, gpu: Handle) -> Answer<Pci> {
        // SAFETY: all zeros are a value of this structure of integers.
        let mut pci: nvmlPciInfo_t = unsafe { MaybeUninit::zeroed().assume_init() };
        call!(self, nvmlDeviceGetPciInfo_v3(gpu.0, &raw mut pci))?;
        Ok(Pci {
            domain: pci.domain,
            bus: pci.bus,
            device: pci.device,
        })
    }

    /// The highest clock in MHz, by `nvmlClockType_t`.
    pub(crate) fn highest_clock(&self, gpu: Handle, kind: c_uint) -> Answer<c_uint> {
        let mut clock = 0;
        call!(self, nvmlDeviceGetMaxClockInfo(gpu.0, kind, &raw mut clock))?;
        Ok(clock)
    }

    pub(crate) fn ecc(&self, gpu: Handle) -> Answer<bool> {
        let (mut current, mut pending) = (0, 0);
        match call!(self, nvmlDeviceGetEccMode(gpu.0, &raw mut current, &raw mut pending)) {
            Err(Code::NOT_SUPPORTED) => Ok(false),
            done => done.map(|()| current == 1),
        }
    }

    /// Whether another process computes on the GPU.
    pub(crate) fn is_used_by_others(&self, gpu: Handle) -> Answer<bool> {
        const MOST: usize = 64;
        // SAFETY: all zeros are a value of this structure of integers.
        let mut processes: [nvmlProcessInfo_t; MOST] = unsafe { MaybeUninit::zeroed().assume_init() };
        let mut count = length(&processes);
        call!(
            self,
            nvmlDeviceGetComputeRunningProcesses_v3(gpu.0, &raw mut count, processes.as_mut_ptr())
        )?;
        let mut listed = processes.iter().take(count as usize);
        Ok(listed.any(|process| process.pid != std::process::id()))
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Pci {
    pub(crate) domain: c_uint,
    pub(crate) bus: c_uint,
    pub(crate) device: c_uint,
}

fn length<T>(buffer: &[T]) -> c_uint {
    c_uint::try_from(buffer.len()).unwrap_or(c_uint::MAX)
}

fn string(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text
        .iter()
        .flat_map(|byte| byte.to_ne_bytes())
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The file this library was loaded from.
pub(crate) fn own_path() -> Option<PathBuf> {
    let inside = own_path as *const c_void;
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` reads no memory at the address and writes the structure it is given.
    let found = unsafe { libc::dladdr(inside, info.as_mut_ptr()) };
    // SAFETY: all zeros are a value of this structure of pointers, and `dladdr` has filled it in or left it.
    let info = unsafe { info.assume_init() };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: it is not null; the loader keeps the name, ended by a zero, as long as the library, which never goes.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())).to_owned())
}
