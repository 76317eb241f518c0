//! What CUDA functions return.

use std::ffi::CStr;

/// A `CUresult` that is not success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

pub(crate) type Answer<T = ()> = Result<T, Code>;

impl Code {
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const NOT_INITIALIZED: Self = Self(3);
    pub(crate) const DEVICE_UNAVAILABLE: Self = Self(46);
    pub(crate) const NO_DEVICE: Self = Self(100);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const INVALID_CONTEXT: Self = Self(201);
    pub(crate) const NOT_FOUND: Self = Self(500);
    pub(crate) const NOT_SUPPORTED: Self = Self(801);
    pub(crate) const SYSTEM_DRIVER_MISMATCH: Self = Self(803);
    pub(crate) const MPS_CONNECTION_FAILED: Self = Self(805);
    pub(crate) const MPS_MAX_CLIENTS_REACHED: Self = Self(808);
    pub(crate) const UNKNOWN: Self = Self(999);

    /// What an NVML code means here.
    pub(crate) fn of_nvml(code: u32) -> Self {
        match code {
            1 => Self::NOT_INITIALIZED, // a process forked from the one that initialised
            2 | 6 => Self::INVALID_DEVICE,
            3 => Self::NOT_SUPPORTED,
            9 => Self::NO_DEVICE,
            18 => Self::SYSTEM_DRIVER_MISMATCH,
            _ => Self::UNKNOWN,
        }
    }
}

/// Name and text of the codes that functions here answer, as `cuda.h` has the names and its comments the sense.
const TEXTS: [(i32, &CStr, &CStr); 13] = [
    (0, c"CUDA_SUCCESS", c"no error"),
    (1, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (3, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
    (
        46,
        c"CUDA_ERROR_DEVICE_UNAVAILABLE",
        c"CUDA-capable device(s) is/are busy or unavailable",
    ),
    (100, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
    (101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (201, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (500, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (801, c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
    (
        803,
        c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        c"system has unsupported display driver / cuda driver combination",
    ),
    (
        805,
        c"CUDA_ERROR_MPS_CONNECTION_FAILED",
        c"MPS client failed to connect to the MPS control daemon or the MPS server",
    ),
    (
        808,
        c"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
        c"the hardware resources required to create MPS client have been exhausted",
    ),
    (999, c"CUDA_ERROR_UNKNOWN", c"unknown error"),
];

/// Name and text of a `CUresult`; none for one that is never answered here.
pub(crate) fn texts(code: i32) -> Option<(&'static CStr, &'static CStr)> {
    let found = TEXTS.iter().find(|(number, _, _)| *number == code)?;
    Some((found.1, found.2))
}
