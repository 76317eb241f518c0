use std::fmt;

use serde::{Deserialize, Serialize};

/// What has to be done to a GPU before it is sound again (`nvmlDeviceGpuRecoveryAction_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RecoveryAction {
    /// It is to be reset.
    Reset,
    /// The machine is to be rebooted.
    Reboot,
    /// The programs that use it together with other GPUs are to end.
    DrainPeerToPeer,
    /// The programs that use it are to end, and it is to be reset.
    DrainAndReset,
    /// A number that this version does not know.
    #[serde(untagged)]
    Other(u32),
}

impl RecoveryAction {
    /// From NVML's number; `None` for 0, where nothing has to be done.
    pub fn from_nvml(number: u32) -> Option<Self> {
        Some(match number {
            0 => return None,
            1 => Self::Reset,
            2 => Self::Reboot,
            3 => Self::DrainPeerToPeer,
            4 => Self::DrainAndReset,
            other => Self::Other(other),
        })
    }
}

impl fmt::Display for RecoveryAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Reset => "a reset of the GPU",
            Self::Reboot => "a reboot of the machine",
            Self::DrainPeerToPeer => "an end of the programs that use it with other GPUs",
            Self::DrainAndReset => "an end of the programs that use it, and a reset",
            Self::Other(number) => return f.pad(&format!("recovery action {number}")),
        })
    }
}
