//! Values by number.

use std::ffi::{c_int, c_uint};

use nvml_wrapper_sys::bindings::{
    field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, nvmlFieldValue_t, nvmlReturn_t, nvmlValue_t,
};

use super::{
    abi::{Array, Handle},
    code::{Code, number},
    session::{Gpu, Session, on},
};

/// `NVML_VALUE_TYPE_UNSIGNED_INT`.
const UNSIGNED: c_uint = 1;

/// Each value has a code of its own; the call as a whole succeeds where the GPU can be asked.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetFieldValues(device: Handle, count: c_int, values: Array<nvmlFieldValue_t>) -> nvmlReturn_t {
    on(device, |gpu, session| {
        let count = usize::try_from(count).map_err(|_| Code::INVALID_ARGUMENT)?;
        values.update(count, |value| answer(value, gpu, session))
    })
}

fn answer(value: &mut nvmlFieldValue_t, gpu: &Gpu, session: &Session) {
    let known = match value.fieldId {
        NVML_FI_DEV_GET_GPU_RECOVERY_ACTION => Ok(session.record(gpu).recovery_action),
        _ => Err(Code::NOT_SUPPORTED),
    };
    let done = known.map(|known| {
        value.valueType = UNSIGNED;
        value.value = nvmlValue_t { uiVal: known };
    });
    value.nvmlReturn = number(done);
}
