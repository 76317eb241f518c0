//! What NVML functions return.

use std::io;

use nvml_wrapper_sys::bindings::nvmlReturn_t;

use super::locate;
use crate::{Error, mig::Refusal};

/// An NVML return code that is not success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Code(pub(super) nvmlReturn_t);

/// What a function answers.
pub(super) type Answer<T = ()> = Result<T, Code>;

impl Code {
    pub(super) const UNINITIALIZED: Self = Self(1);
    pub(super) const INVALID_ARGUMENT: Self = Self(2);
    pub(super) const NOT_SUPPORTED: Self = Self(3);
    pub(super) const NO_PERMISSION: Self = Self(4);
    pub(super) const NOT_FOUND: Self = Self(6);
    pub(super) const INSUFFICIENT_SIZE: Self = Self(7);
    pub(super) const DRIVER_NOT_LOADED: Self = Self(9);
    pub(super) const TIMEOUT: Self = Self(10);
    pub(super) const LIBRARY_NOT_FOUND: Self = Self(12);
    pub(super) const FUNCTION_NOT_FOUND: Self = Self(13);
    pub(super) const GPU_IS_LOST: Self = Self(15);
    pub(super) const LIB_RM_VERSION_MISMATCH: Self = Self(18);
    pub(super) const ARGUMENT_VERSION_MISMATCH: Self = Self(25);
    pub(super) const UNKNOWN: Self = Self(999);
}

impl From<Refusal> for Code {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.code())
    }
}

/// That the state cannot be written is answered as the driver answers one who may not configure it.
impl From<Error> for Code {
    fn from(error: Error) -> Self {
        match error {
            Error::Write { source, .. }
                if matches!(
                    source.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                Self::NO_PERMISSION
            }
            error => locate::unreadable(&error),
        }
    }
}

/// The number C sees.
pub(super) fn number(answer: Answer) -> nvmlReturn_t {
    answer.map_or_else(|code| code.0, |()| 0)
}

/// The texts of `nvmlErrorString`, as driver 580.159.04 gives them.
pub(crate) fn text(code: nvmlReturn_t) -> &'static std::ffi::CStr {
    match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        5 => c"Already Initialized",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        15 => c"GPU is lost",
        16 => c"GPU requires reset",
        17 => c"GPU access blocked by the operating system",
        18 => c"Driver/library version mismatch",
        19 => c"In use by another client",
        20 => c"Insufficient Memory",
        21 => c"No data",
        22 => c"vGPU ECC not supported",
        23 => c"Insufficient Resources",
        24 => c"Invalid Frequency",
        25 => c"Argument version mismatch",
        26 => c"Requested functionality has been deprecated",
        27 => c"System is not in ready state",
        28 => c"No supported GPUs were found",
        29 => c"Resource not in correct state to perform requested operation",
        30 => c"Reset type is not supported for given device",
        _ => c"Unknown Error",
    }
}
