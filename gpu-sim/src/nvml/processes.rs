//! Processes on a device.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t, nvmlReturn_t};

use super::{
    abi::{Handle, InOut, List},
    session::{Session, Target, on_either},
};
use crate::state::{Event, Process};

/// Those of the whole GPU, or those on a MIG device.
fn processes<'a>(target: &Target<'_>, session: &'a Session) -> impl Iterator<Item = &'a Process> {
    let here = match target {
        Target::Gpu(_) => None,
        Target::Mig(device) => Some((device.instance.id, device.compute.id)),
    };
    let all = &session.record(target.whole()).processes;
    all.iter()
        .filter(move |process| here.is_none() || process.instance == here)
}

fn first(process: &Process) -> nvmlProcessInfo_v1_t {
    nvmlProcessInfo_v1_t {
        pid: process.pid,
        usedGpuMemory: process.memory_mib << 20,
    }
}

/// Also the structure of the third version. Without MIG the instances are `0xffffffff`.
fn second(process: &Process) -> nvmlProcessInfo_v2_t {
    let (instance, compute) = process.instance.unwrap_or((Event::NO_INSTANCE, Event::NO_INSTANCE));
    nvmlProcessInfo_v2_t {
        pid: process.pid,
        usedGpuMemory: process.memory_mib << 20,
        gpuInstanceId: instance,
        computeInstanceId: compute,
    }
}

/// Simulated processes compute; none draws or goes through MPS.
macro_rules! process_lists {
    ($(fn $name:ident($kind:ty) { $processes:expr })*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(device: Handle, count: InOut<'_, c_uint>, infos: List<$kind>) -> nvmlReturn_t {
            let of: fn(&Target<'_>, &Session) -> Vec<$kind> = $processes;
            on_either(device, |target, session| infos.fill(count, of(&target, session), false))
        }
    )*};
}

process_lists! {
    fn nvmlDeviceGetComputeRunningProcesses(nvmlProcessInfo_v1_t) { |target, session| processes(target, session).map(first).collect() }
    fn nvmlDeviceGetComputeRunningProcesses_v2(nvmlProcessInfo_v2_t) { |target, session| processes(target, session).map(second).collect() }
    fn nvmlDeviceGetComputeRunningProcesses_v3(nvmlProcessInfo_v2_t) { |target, session| processes(target, session).map(second).collect() }
    fn nvmlDeviceGetGraphicsRunningProcesses(nvmlProcessInfo_v1_t) { |_, _| Vec::new() }
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlProcessInfo_v2_t) { |_, _| Vec::new() }
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlProcessInfo_v2_t) { |_, _| Vec::new() }
    fn nvmlDeviceGetMPSComputeRunningProcesses(nvmlProcessInfo_v1_t) { |_, _| Vec::new() }
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlProcessInfo_v2_t) { |_, _| Vec::new() }
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlProcessInfo_v2_t) { |_, _| Vec::new() }
}
