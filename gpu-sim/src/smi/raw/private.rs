//! What the library gives `nvidia-smi` beyond NVML.

use std::ffi::{c_uint, c_void};

use libloading::os::unix::{Library, RTLD_NOW, Symbol};
use nvml_wrapper_sys::bindings::nvmlReturn_t;

use super::{Gpu, check};
use crate::{
    nvml::{PRIVATE_TABLE, PrivateTable, PrivateTableId},
    smi::{LIBRARY, failure::Failure},
};

type GetTable = unsafe extern "C" fn(*mut *const c_void, *const PrivateTableId) -> nvmlReturn_t;

/// The functions of the library that is loaded. One that has no such table does not support them.
fn table() -> Result<PrivateTable, Failure> {
    let unsupported = |_| Failure::of_code(3);
    // SAFETY: the library is loaded already, so none of its initialisers runs.
    let library = unsafe { Library::open(Some(LIBRARY), RTLD_NOW) }.map_err(unsupported)?;
    // SAFETY: a function of that name is of that type.
    let function: Symbol<GetTable> = unsafe { library.get(b"nvmlInternalGetExportTable\0") }.map_err(unsupported)?;
    let (mut found, id) = (std::ptr::null(), PRIVATE_TABLE);
    // SAFETY: both point to values that are there until the call returns.
    check(unsafe { function(&raw mut found, &raw const id) })?;
    // SAFETY: the library gives the table of that id, which stays as long as the library, and that is as long as NVML is in use.
    Ok(unsafe { *found.cast::<PrivateTable>() })
}

impl Gpu<'_> {
    pub(in crate::smi) fn reset(self) -> Result<(), Failure> {
        check((table()?.reset)(self.device))
    }

    pub(in crate::smi) fn time_slice(self) -> Result<c_uint, Failure> {
        let mut length = 0;
        let read = table()?.time_slice;
        // SAFETY: the length is there until the call returns.
        check(unsafe { read(self.device, &raw mut length) })?;
        Ok(length)
    }

    pub(in crate::smi) fn set_time_slice(self, length: c_uint) -> Result<(), Failure> {
        check((table()?.set_time_slice)(self.device, length))
    }
}
