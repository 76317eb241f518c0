//! Memory sizes and use.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{nvmlBAR1Memory_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlReturn_t};

use super::{
    abi::{Handle, InOut, version_of},
    code::Code,
    session::{on, values},
};

values! {
    // Version 1 counts what the driver keeps for itself as used (measured).
    fn nvmlDeviceGetMemoryInfo(gpu, _) -> nvmlMemory_t {{
        let memory = &gpu.board.memory;
        nvmlMemory_t {
            total: memory.total_bytes,
            free: memory.total_bytes.saturating_sub(memory.reserved_bytes),
            used: memory.reserved_bytes,
        }
    }}
    fn nvmlDeviceGetBAR1MemoryInfo(gpu, _) -> nvmlBAR1Memory_t {{
        let memory = &gpu.board.memory;
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
    on(device, |gpu, _| {
        let info = info.ok_or(Code::INVALID_ARGUMENT)?;
        if info.version != version_of::<nvmlMemory_v2_t>(2) {
            return Err(Code::FUNCTION_NOT_FOUND);
        }
        let memory = &gpu.board.memory;
        info.total = memory.total_bytes;
        info.reserved = memory.reserved_bytes;
        info.free = memory.total_bytes.saturating_sub(memory.reserved_bytes);
        info.used = 0;
        Ok(())
    })
}
