//! The NVML calls that `nvml-wrapper` 0.13 lacks or shortens.
//!
//! | call | why not the wrapper's |
//! |---|---|
//! | `nvmlDeviceGetMemoryInfo` | it calls `_v2` alone, which drivers before 510 do not have |
//! | `nvmlSystemGetCudaDriverVersion` | it calls `_v2` alone, which fails where libcuda is not loadable |
//! | `nvmlEventSetWait_v2` and its set | it drops the GPU and compute instance of an event and the number of an unknown Xid |
//! | `nvmlDeviceGetGpuInstancePossiblePlacements_v2` | its list is always empty: the vector's length is never set |
//! | `nvmlDeviceGetName`, `…UUID`, `…PciInfo_v3` and all other texts | it reads to the next NUL, also past the buffer's end |
//! | `nvmlDeviceGetFieldValues` | no scopes, types 5 and 6 unknown, `unsigned long` cut to 32 bits, another id in the answer than was asked for |
//! | `nvmlDeviceGetProcessUtilization` and the lists of processes | they count and fill once, and fail where a process came in between |
//! | `nvmlGpm*` | it panics for more than 210 metrics, and allocates for each sample |
//! | `nvmlDeviceSetMigMode` | what activating the mode met comes as a bare number within success |
//! | GPU and compute instances, `…ProfileInfoV`, fabric, addressing mode, driver branch, NVLinks' other ends, remapped rows | absent |

#![expect(unsafe_code, reason = "calls into the driver's C library")]

use std::ffi::{c_char, c_uint};

use nvml_wrapper::{
    Device, Nvml,
    error::{NvmlError, nvml_sym, nvml_try},
};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlMemory_t};

pub(super) mod fabric;
pub(super) mod field;
pub(super) mod gpm;
pub(super) mod mig;
pub(super) mod process;
pub(super) mod text;

/// The version that a struct carries in its first field: its size, and a number in the upper byte.
fn version_of<T>(number: u32) -> c_uint {
    // No struct of NVML comes near this: the size field has 24 bits.
    c_uint::try_from(size_of::<T>()).unwrap_or(0) | number << 24
}

/// Whether the driver did not take a version of a struct, or does not have the call that takes it.
fn is_other_version(error: &NvmlError) -> bool {
    const ARGUMENT_VERSION_MISMATCH: u32 = 25; // the wrapper has no name for it
    matches!(
        error,
        NvmlError::UnexpectedVariant(ARGUMENT_VERSION_MISMATCH)
            | NvmlError::InvalidArg
            | NvmlError::FunctionNotFound
            | NvmlError::FailedToLoadSymbol(_)
    )
}

/// The longest list that is asked for: a driver that counts more is out of its mind.
const MOST_ENTRIES: c_uint = 1 << 16;

/// NVML's way to give a list: count, then fill; again if it grew in between.
fn listed<T: Clone>(
    empty: T,
    count: impl Fn(&mut c_uint) -> Result<(), NvmlError>,
    fill: impl Fn(&mut [T], &mut c_uint) -> Result<(), NvmlError>,
) -> Result<Vec<T>, NvmlError> {
    const ATTEMPTS: u32 = 5;
    for _ in 0..ATTEMPTS {
        let mut number = 0;
        match count(&mut number) {
            Ok(()) if number == 0 => return Ok(Vec::new()),
            Ok(()) | Err(NvmlError::InsufficientSize(_)) => {}
            Err(error) => return Err(error),
        }
        if number > MOST_ENTRIES {
            return Err(NvmlError::InsufficientSize(Some(number as usize)));
        }
        let mut array = vec![empty.clone(); number as usize];
        match fill(&mut array, &mut number) {
            Ok(()) => {
                array.truncate(number as usize);
                return Ok(array);
            }
            Err(NvmlError::InsufficientSize(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Err(NvmlError::InsufficientSize(None))
}

/// What a field of characters holds up to its NUL, or whole.
fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field
        .iter()
        .take_while(|c| **c != 0)
        .map(|c| u8::from_ne_bytes(c.to_ne_bytes()))
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The first version of the CUDA version call: 1000 × major + 10 × minor.
pub(super) fn cuda_driver_version(nvml: &Nvml) -> Result<u32, NvmlError> {
    let call = nvml_sym(nvml.lib().nvmlSystemGetCudaDriverVersion.as_ref())?;
    let mut version = 0;
    // SAFETY: NVML is initialised as long as `nvml` lives, and `version` is a valid place for one int.
    nvml_try(unsafe { call(&raw mut version) })?;
    u32::try_from(version).map_err(|_| NvmlError::Unknown)
}

/// The first version of the memory call: the whole framebuffer in bytes, as the second version's `total`.
pub(super) fn memory_total(device: &Device<'_>) -> Result<u64, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    let mut memory = nvmlMemory_t {
        total: 0,
        free: 0,
        used: 0,
    };
    let handle = Handle::of(device).0;
    // SAFETY: the handle is NVML's own, and `memory` is a valid place for the struct of this version of the call.
    nvml_try(unsafe { call(handle, &raw mut memory) })?;
    Ok(memory.total)
}

/// A GPU as NVML names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle(nvmlDevice_t);

// SAFETY: NVML's handles are names that any thread may use; NVML looks them up and does its own locking.
unsafe impl Send for Handle {}

impl Handle {
    pub(super) fn of(device: &Device<'_>) -> Self {
        // SAFETY: the pointer is compared, or given to NVML while the `Nvml` that gave it is borrowed; NVML gives one GPU the
        // same handle until it is shut down.
        Self(unsafe { device.handle() })
    }

    /// The GPU again, for a call by the `Nvml` that gave the handle.
    pub(super) fn device(self, nvml: &Nvml) -> Device<'_> {
        // SAFETY: handles do not leave the `Library` whose `Nvml` gave them, which is passed here.
        unsafe { Device::new(self.0, nvml) }
    }
}

/// An event as NVML delivers it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event {
    pub(super) gpu: Handle,
    /// One `nvmlEventType*` bit.
    pub(super) kind: u64,
    /// The Xid, for an Xid event.
    pub(super) data: u64,
    /// 0xFFFFFFFF where the event is of the whole GPU.
    pub(super) gpu_instance: u32,
    /// 0xFFFFFFFF where the event is of the whole GPU.
    pub(super) compute_instance: u32,
}

/// A set of events to wait for. Not for use by two threads at once, as NVML demands.
#[derive(Debug)]
pub(super) struct EventSet<'nvml> {
    nvml: &'nvml Nvml,
    set: nvmlEventSet_t,
}

impl<'nvml> EventSet<'nvml> {
    pub(super) fn new(nvml: &'nvml Nvml) -> Result<Self, NvmlError> {
        // Checked here so that neither waiting nor dropping can find it absent later.
        nvml_sym(nvml.lib().nvmlEventSetFree.as_ref())?;
        let call = nvml_sym(nvml.lib().nvmlEventSetCreate.as_ref())?;
        let mut set = std::ptr::null_mut();
        // SAFETY: NVML is initialised as long as `nvml` lives, and `set` is a valid place for one handle.
        nvml_try(unsafe { call(&raw mut set) })?;
        Ok(Self { nvml, set })
    }

    /// Adds a GPU's events; `kinds` must be among those that it supports.
    pub(super) fn register(&self, device: &Device<'nvml>, kinds: u64) -> Result<(), NvmlError> {
        let call = nvml_sym(self.nvml.lib().nvmlDeviceRegisterEvents.as_ref())?;
        let handle = Handle::of(device).0;
        // SAFETY: both handles are NVML's own and alive: the set is freed on drop only.
        nvml_try(unsafe { call(handle, kinds, self.set) })
    }

    /// The next event; `Err(NvmlError::Timeout)` if there was none for `timeout_ms`.
    pub(super) fn wait(&self, timeout_ms: u32) -> Result<Event, NvmlError> {
        let call = nvml_sym(self.nvml.lib().nvmlEventSetWait_v2.as_ref())?;
        let mut event = nvmlEventData_t {
            device: std::ptr::null_mut(),
            eventType: 0,
            eventData: 0,
            gpuInstanceId: u32::MAX,
            computeInstanceId: u32::MAX,
        };
        // SAFETY: the set is alive, and `event` is a valid place for the struct of this version of the call.
        nvml_try(unsafe { call(self.set, &raw mut event, timeout_ms) })?;
        Ok(Event {
            gpu: Handle(event.device),
            kind: event.eventType,
            data: event.eventData,
            gpu_instance: event.gpuInstanceId,
            compute_instance: event.computeInstanceId,
        })
    }
}

impl Drop for EventSet<'_> {
    fn drop(&mut self) {
        if let Ok(call) = &self.nvml.lib().nvmlEventSetFree {
            // SAFETY: the set is NVML's own and nobody uses it after this. A set that cannot be freed is left to NVML.
            let _ = unsafe { call(self.set) };
        }
    }
}
