//! Memory sizes and use.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{nvmlBAR1Memory_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlReturn_t};

use super::{
    abi::{Handle, InOut, Out, put, version_of},
    code::{Answer, Code},
    session::{Session, Target, on_either, values},
};
use crate::state::Process;

/// Sizes in bytes: all there is, what the driver keeps for itself, what processes use.
struct Sizes {
    total: u64,
    reserved: u64,
    used: u64,
}

impl Sizes {
    /// Not supported where the memory is the processor's.
    fn of(target: &Target<'_>, session: &Session) -> Answer<Self> {
        if !target.whole().board.memory.reported {
            return Err(Code::NOT_SUPPORTED);
        }
        let processes = &session.record(target.whole()).processes;
        let used = |here: &dyn Fn(&Process) -> bool| {
            let sum: u64 = processes
                .iter()
                .filter(|process| here(process))
                .map(|process| process.memory_mib)
                .sum();
            sum << 20
        };
        Ok(match target {
            Target::Gpu(gpu) => Self {
                total: gpu.board.memory.total_bytes,
                reserved: gpu.board.memory.reserved_bytes,
                used: used(&|_| true),
            },
            // The memory is the GPU instance's; its compute instances share it.
            Target::Mig(device) => Self {
                total: device.profile.memory_mib << 20,
                reserved: 0,
                used: used(&|process| process.instance.is_some_and(|(id, _)| id == device.instance.id)),
            },
        })
    }

    fn free(&self) -> u64 {
        self.total.saturating_sub(self.reserved).saturating_sub(self.used)
    }
}

/// Version 1 counts what the driver keeps for itself as used (measured).
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo(device: Handle, info: Out<'_, nvmlMemory_t>) -> nvmlReturn_t {
    on_either(device, |target, session| {
        let sizes = Sizes::of(&target, session)?;
        let value = nvmlMemory_t {
            total: sizes.total,
            free: sizes.free(),
            used: sizes.total - sizes.free(),
        };
        put(info, value)
    })
}

values! {
    fn nvmlDeviceGetBAR1MemoryInfo(gpu, _) -> nvmlBAR1Memory_t {{
        let memory = &gpu.board.memory;
        if !memory.reported {
            return Err(Code::NOT_SUPPORTED);
        }
        nvmlBAR1Memory_t {
            bar1Total: memory.bar1_total_bytes,
            bar1Free: memory.bar1_total_bytes.saturating_sub(memory.bar1_used_bytes),
            bar1Used: memory.bar1_used_bytes,
        }
    }}
    fn nvmlDeviceGetMemoryBusWidth(gpu, _) -> c_uint { gpu.board.memory.bus_width_bits }
}

/// A structure of another version is answered with `FUNCTION_NOT_FOUND`, not with a version mismatch (measured).
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Handle, info: InOut<'_, nvmlMemory_v2_t>) -> nvmlReturn_t {
    on_either(device, |target, session| {
        let info = info.ok_or(Code::INVALID_ARGUMENT)?;
        if info.version != version_of::<nvmlMemory_v2_t>(2) {
            return Err(Code::FUNCTION_NOT_FOUND);
        }
        let sizes = Sizes::of(&target, session)?;
        info.total = sizes.total;
        info.reserved = sizes.reserved;
        info.free = sizes.free();
        info.used = sizes.used.min(sizes.total - sizes.reserved);
        Ok(())
    })
}
