//! Processes on a GPU or MIG device.

use std::ffi::c_uint;

use nvml_wrapper::{
    Device,
    error::{NvmlError, nvml_sym, nvml_try},
};
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlDevice_t, nvmlProcessInfo_t, nvmlProcessInfo_v1_t, nvmlProcessUtilizationSample_t, nvmlReturn_t,
};

use super::{Handle, listed};
use crate::ProcessKind;

/// A process as NVML lists it.
#[derive(Debug, Clone, Copy)]
pub(in crate::nvml) struct Process {
    pub(in crate::nvml) pid: u32,
    pub(in crate::nvml) memory_bytes: Option<u64>,
    pub(in crate::nvml) gpu_instance: Option<u32>,
    pub(in crate::nvml) compute_instance: Option<u32>,
}

type Call<T> = unsafe extern "C" fn(nvmlDevice_t, *mut c_uint, *mut T) -> nvmlReturn_t;

/// The processes of one kind, with the newest version of the call that the driver has. The wrapper counts and fills once,
/// and fails where a process came in between; and it has no first version.
pub(in crate::nvml) fn processes(device: &Device<'_>, kind: ProcessKind) -> Result<Vec<Process>, NvmlError> {
    let lib = device.nvml().lib();
    if let Ok(call) = newest(lib, kind) {
        return list(
            device,
            call,
            nvmlProcessInfo_t {
                pid: 0,
                usedGpuMemory: 0,
                gpuInstanceId: 0,
                computeInstanceId: 0,
            },
        )
        .map(|found| found.into_iter().map(Process::from).collect());
    }
    let call = match kind {
        ProcessKind::Compute => lib.nvmlDeviceGetComputeRunningProcesses.as_ref(),
        ProcessKind::Graphics => lib.nvmlDeviceGetGraphicsRunningProcesses.as_ref(),
        ProcessKind::Mps => lib.nvmlDeviceGetMPSComputeRunningProcesses.as_ref(),
    };
    list(
        device,
        *nvml_sym(call)?,
        nvmlProcessInfo_v1_t {
            pid: 0,
            usedGpuMemory: 0,
        },
    )
    .map(|found| found.into_iter().map(Process::from).collect())
}

/// The third version, or the second, whose struct is the same.
fn newest(lib: &NvmlLib, kind: ProcessKind) -> Result<Call<nvmlProcessInfo_t>, NvmlError> {
    let (third, second) = match kind {
        ProcessKind::Compute => (
            &lib.nvmlDeviceGetComputeRunningProcesses_v3,
            &lib.nvmlDeviceGetComputeRunningProcesses_v2,
        ),
        ProcessKind::Graphics => (
            &lib.nvmlDeviceGetGraphicsRunningProcesses_v3,
            &lib.nvmlDeviceGetGraphicsRunningProcesses_v2,
        ),
        ProcessKind::Mps => (
            &lib.nvmlDeviceGetMPSComputeRunningProcesses_v3,
            &lib.nvmlDeviceGetMPSComputeRunningProcesses_v2,
        ),
    };
    nvml_sym(third.as_ref()).or_else(|_| nvml_sym(second.as_ref())).copied()
}

fn list<T: Clone>(device: &Device<'_>, call: Call<T>, empty: T) -> Result<Vec<T>, NvmlError> {
    let handle = Handle::of(device).0;
    let count = |count: &mut c_uint| {
        // SAFETY: the handle is NVML's own; with a count of 0 the call only counts.
        nvml_try(unsafe { call(handle, count, std::ptr::null_mut()) })
    };
    let fill = |array: &mut [T], count: &mut c_uint| {
        // SAFETY: the handle is NVML's own, and the array has as many places as `count` says.
        nvml_try(unsafe { call(handle, count, array.as_mut_ptr()) })
    };
    listed(empty, count, fill)
}

/// `NVML_VALUE_NOT_AVAILABLE`.
fn memory(bytes: u64) -> Option<u64> {
    (bytes != u64::MAX).then_some(bytes)
}

impl From<nvmlProcessInfo_t> for Process {
    fn from(info: nvmlProcessInfo_t) -> Self {
        let whole = |id: u32| (id != u32::MAX).then_some(id);
        Self {
            pid: info.pid,
            memory_bytes: memory(info.usedGpuMemory),
            gpu_instance: whole(info.gpuInstanceId),
            compute_instance: whole(info.computeInstanceId),
        }
    }
}

impl From<nvmlProcessInfo_v1_t> for Process {
    fn from(info: nvmlProcessInfo_v1_t) -> Self {
        Self {
            pid: info.pid,
            memory_bytes: memory(info.usedGpuMemory),
            gpu_instance: None,
            compute_instance: None,
        }
    }
}

/// What processes have had of a GPU since a time in microseconds since 1970; no samples is an empty list.
pub(in crate::nvml) fn utilization(
    device: &Device<'_>,
    since_us: u64,
) -> Result<Vec<nvmlProcessUtilizationSample_t>, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetProcessUtilization.as_ref())?;
    let handle = Handle::of(device).0;
    let empty = nvmlProcessUtilizationSample_t {
        pid: 0,
        timeStamp: 0,
        smUtil: 0,
        memUtil: 0,
        encUtil: 0,
        decUtil: 0,
    };
    let count = |count: &mut c_uint| {
        // SAFETY: the handle is NVML's own; without an array the call only counts.
        nvml_try(unsafe { call(handle, std::ptr::null_mut(), count, since_us) })
    };
    let fill = |array: &mut [nvmlProcessUtilizationSample_t], count: &mut c_uint| {
        // SAFETY: the handle is NVML's own, and the array has as many places as `count` says.
        nvml_try(unsafe { call(handle, array.as_mut_ptr(), count, since_us) })
    };
    match listed(empty, count, fill) {
        Err(NvmlError::NotFound) => Ok(Vec::new()),
        answer => answer,
    }
}
