use nvml_wrapper::error::NvmlError;

/// Why NVML did not do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The GPU or its driver cannot do it, or MIG mode is off.
    #[error("it is not supported")]
    NotSupported,
    /// The caller is not privileged.
    #[error("this process may not do it")]
    NoPermission,
    /// The GPU has no room for it, or not the engines.
    #[error("the GPU has no room for it")]
    InsufficientResources,
    /// A process uses it, or something of it is left.
    #[error("it is in use")]
    InUse,
    /// The driver does not take the arguments.
    #[error("the driver refuses the arguments")]
    InvalidArgument,
    /// There is no such thing, or none any more.
    #[error("it is not there")]
    NotFound,
    /// The change is noted and comes into force when the GPU is reset.
    #[error("the GPU has to be reset first")]
    ResetRequired,
    /// The GPU has fallen off the bus.
    #[error("the GPU is lost")]
    GpuLost,
    /// What lies there is not what the plan was checked with.
    #[error("the GPU is no longer divided as it was when the plan was checked")]
    Changed,
    /// The library has no such function.
    #[error("the driver library is too old for it")]
    NoFunction,
    /// Another of NVML's codes.
    #[error("NVML answered {0}")]
    Other(u32),
}

impl Refusal {
    pub(super) fn of(error: &NvmlError) -> Self {
        const INSUFFICIENT_RESOURCES: u32 = 23; // the wrapper has no name for it
        match error {
            NvmlError::NotSupported => Self::NotSupported,
            NvmlError::NoPermission => Self::NoPermission,
            NvmlError::InUse => Self::InUse,
            NvmlError::InvalidArg => Self::InvalidArgument,
            NvmlError::NotFound => Self::NotFound,
            NvmlError::ResetRequired => Self::ResetRequired,
            NvmlError::GpuLost => Self::GpuLost,
            NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_) => Self::NoFunction,
            NvmlError::UnexpectedVariant(INSUFFICIENT_RESOURCES) => Self::InsufficientResources,
            NvmlError::UnexpectedVariant(code) => Self::Other(*code),
            NvmlError::Timeout => Self::Other(10),
            NvmlError::InsufficientMemory => Self::Other(20),
            _ => Self::Other(999), // NVML_ERROR_UNKNOWN
        }
    }

    /// What activating a MIG mode met, as a code beside success; `None` for nothing.
    pub(super) fn of_activation(code: u32) -> Option<Self> {
        match code {
            0 => None,
            3 => Some(Self::NotSupported),
            15 => Some(Self::GpuLost),
            16 => Some(Self::ResetRequired),
            19 => Some(Self::InUse),
            other => Some(Self::Other(other)),
        }
    }
}

/// A call that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{call}`: {refusal}")]
pub struct CallRefused {
    /// The NVML function.
    pub call: &'static str,
    /// What it answered.
    pub refusal: Refusal,
}
