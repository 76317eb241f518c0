//! What `nvidia-smi` asks of the library beyond NVML: a reset, and how long a time slice is.
//!
//! As of the driver's library, it comes as a table of functions that has an id. Table and id are our own; the driver's are not
//! public, so its own `nvidia-smi` is told that there is no such table.
#![expect(non_snake_case, reason = "so that the log of calls names them as it does others")]

use std::ffi::{c_uint, c_void};

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

use super::{
    abi::{Out, put},
    calls::called_by,
    code::Code,
    session::on,
};
use crate::state::{Event, GpuRecord};

/// Asks for a [`Table`], and for that of this version.
pub(crate) const TABLE: TableId = *b"gpu-sim private1";

pub(crate) type TableId = [u8; 16];

/// Functions that are not exported. Each answers as NVML's do.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table {
    /// Resets a GPU that no process uses.
    pub(crate) reset: extern "C" fn(nvmlDevice_t) -> nvmlReturn_t,
    /// How long a process computes before the next one's turn: 0 default, 1 short, 2 medium, 3 long.
    pub(crate) time_slice: unsafe extern "C" fn(nvmlDevice_t, *mut c_uint) -> nvmlReturn_t,
    pub(crate) set_time_slice: extern "C" fn(nvmlDevice_t, c_uint) -> nvmlReturn_t,
}

static FUNCTIONS: Table = Table {
    reset: nvmlInternalReset,
    time_slice: nvmlInternalGetTimeSlice,
    set_time_slice: nvmlInternalSetTimeSlice,
};

#[unsafe(no_mangle)]
extern "C" fn nvmlInternalGetExportTable(table: Out<'_, *const c_void>, id: Option<&TableId>) -> nvmlReturn_t {
    called_by(|| {
        let id = id.ok_or(Code::INVALID_ARGUMENT)?;
        if *id != TABLE {
            return Err(Code::NOT_SUPPORTED);
        }
        put(table, (&raw const FUNCTIONS).cast())
    })
}

extern "C" fn nvmlInternalReset(device: nvmlDevice_t) -> nvmlReturn_t {
    on(device.into(), |gpu, session| {
        session.change(gpu, |record| GpuRecord::reset(record).map_err(Code::from))?;
        if let Some(state) = session.state() {
            let _ = state.append(&Event::of_gpu(&gpu.entry.uuid, Event::MIG_CHANGE, 0));
        }
        Ok(())
    })
}

/// # Safety
/// The pointer is null, or there is room behind it.
unsafe extern "C" fn nvmlInternalGetTimeSlice(device: nvmlDevice_t, out: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: the caller vouches for it.
    let out: Out<'_, c_uint> = unsafe { out.cast::<std::mem::MaybeUninit<c_uint>>().as_mut() };
    on(device.into(), |gpu, session| put(out, session.record(gpu).time_slice))
}

extern "C" fn nvmlInternalSetTimeSlice(device: nvmlDevice_t, length: c_uint) -> nvmlReturn_t {
    on(device.into(), |gpu, session| {
        if length > 3 {
            return Err(Code::INVALID_ARGUMENT);
        }
        session.change(gpu, |record| {
            record.time_slice = length;
            Ok(())
        })
    })
}
