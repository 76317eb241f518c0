use std::io;

use nvml_wrapper::error::NvmlError;

use crate::nvml::error_text;

/// Why the command failed: a message for stderr and an exit code.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) message: String,
    pub(super) exit_code: u8,
}

impl Failure {
    /// An option that does not fit; exit code 2.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            exit_code: 2,
        }
    }

    /// An option without its value.
    pub(super) fn no_value(option: &str) -> Self {
        Self::usage(format!("ERROR: Option {option} needs a value."))
    }

    /// Arguments that do not say what to do.
    pub(super) fn no_command() -> Self {
        Self::usage("ERROR: No command was given. Please run 'nvidia-smi -h'.")
    }

    /// An option there is none of; exit code 255.
    pub(super) fn unknown_option(option: &str) -> Self {
        let message = format!("ERROR: Option {option} is not recognized. Please run 'nvidia-smi -h'.\n");
        Self {
            message,
            exit_code: 255,
        }
    }

    pub(super) fn no_devices() -> Self {
        Self {
            message: "No devices were found".to_owned(),
            exit_code: 6,
        }
    }

    pub(super) fn of_initialisation(error: &NvmlError) -> Self {
        let cause = match error {
            NvmlError::LibloadingError(cause) => cause.to_string(),
            other => text(other),
        };
        Self {
            message: format!("Failed to initialize NVML: {cause}"),
            exit_code: exit_code(error),
        }
    }

    pub(super) fn of_gpu(index: u32, error: &NvmlError) -> Self {
        let message = format!("Unable to determine the device handle for GPU {index}: {}", text(error));
        Self {
            message,
            exit_code: exit_code(error),
        }
    }

    /// NVML's own text and number.
    pub(super) fn of_code(code: u32) -> Self {
        Self {
            message: error_text(code).to_string_lossy().into_owned(),
            exit_code: u8::try_from(code).unwrap_or(255),
        }
    }

    pub(super) fn not_found(message: &str) -> Self {
        Self {
            message: message.to_owned(),
            exit_code: 6,
        }
    }

    pub(super) fn of_output(error: &io::Error) -> Self {
        Self {
            message: format!("cannot write the answer: {error}"),
            exit_code: 255,
        }
    }
}

impl From<NvmlError> for Failure {
    fn from(error: NvmlError) -> Self {
        Self {
            message: text(&error),
            exit_code: exit_code(&error),
        }
    }
}

/// NVML's text for the error.
pub(super) fn text(error: &NvmlError) -> String {
    error_text(code(error)).to_string_lossy().into_owned()
}

fn exit_code(error: &NvmlError) -> u8 {
    u8::try_from(code(error)).unwrap_or(255)
}

/// The number behind the wrapper's error.
fn code(error: &NvmlError) -> u32 {
    match error {
        NvmlError::Uninitialized => 1,
        NvmlError::InvalidArg => 2,
        NvmlError::NotSupported => 3,
        NvmlError::NoPermission => 4,
        NvmlError::NotFound => 6,
        NvmlError::InsufficientSize(_) => 7,
        NvmlError::InsufficientPower => 8,
        NvmlError::DriverNotLoaded => 9,
        NvmlError::Timeout => 10,
        NvmlError::IrqIssue => 11,
        NvmlError::LibraryNotFound | NvmlError::LibloadingError(_) => 12,
        NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => 13,
        NvmlError::CorruptedInfoROM => 14,
        NvmlError::GpuLost => 15,
        NvmlError::ResetRequired => 16,
        NvmlError::OperatingSystem => 17,
        NvmlError::LibRmVersionMismatch => 18,
        NvmlError::InUse => 19,
        NvmlError::InsufficientMemory => 20,
        NvmlError::NoData => 21,
        NvmlError::VgpuEccNotSupported => 22,
        NvmlError::UnexpectedVariant(code) => *code,
        _ => 999,
    }
}
