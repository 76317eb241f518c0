//! Field values: numbers that NVML gives by number, many in one call.

use std::ffi::c_int;

use nvml_wrapper::{
    Device,
    error::{NvmlError, nvml_sym, nvml_try},
};
use nvml_wrapper_sys::bindings::{nvmlFieldValue_t, nvmlReturn_t, nvmlValue_t};

use super::Handle;

/// The answer to one of the values asked for.
pub(in crate::nvml) struct FieldAnswer {
    /// NVML's code for this value alone.
    pub(in crate::nvml) code: nvmlReturn_t,
    /// `NVML_VALUE_TYPE_*`.
    pub(in crate::nvml) kind: u32,
    /// The union's bytes, from the lowest on; those that the driver did not write are zero.
    pub(in crate::nvml) bytes: [u8; 8],
    /// Microseconds since 1970.
    pub(in crate::nvml) timestamp_us: i64,
}

impl FieldAnswer {
    /// The value of a field whose type is `NVML_VALUE_TYPE_UNSIGNED_INT`.
    pub(in crate::nvml) fn unsigned(&self) -> u32 {
        let [a, b, c, d, ..] = self.bytes;
        u32::from_ne_bytes([a, b, c, d])
    }
}

/// The answers in the order of the questions, which are numbers of fields and scopes.
pub(in crate::nvml) fn field_values(
    device: &Device<'_>,
    fields: impl Iterator<Item = (u32, u32)>,
) -> Result<Vec<FieldAnswer>, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetFieldValues.as_ref())?;
    let question = |(field, scope)| nvmlFieldValue_t {
        fieldId: field,
        scopeId: scope,
        timestamp: 0,
        latencyUsec: 0,
        valueType: 0,
        nvmlReturn: 0,
        value: nvmlValue_t { ullVal: 0 },
    };
    let mut values: Vec<_> = fields.map(question).collect();
    let count = c_int::try_from(values.len()).map_err(|_| NvmlError::InvalidArg)?;
    let handle = Handle::of(device).0;
    // SAFETY: the handle is NVML's own, and the array has as many places as `count` says.
    nvml_try(unsafe { call(handle, count, values.as_mut_ptr()) })?;
    let answer = |value: nvmlFieldValue_t| FieldAnswer {
        code: value.nvmlReturn,
        kind: value.valueType,
        // SAFETY: all of the union was written above as one number, and whatever the driver wrote over it is bytes.
        bytes: unsafe { value.value.ullVal }.to_ne_bytes(),
        timestamp_us: value.timestamp,
    };
    Ok(values.into_iter().map(answer).collect())
}
