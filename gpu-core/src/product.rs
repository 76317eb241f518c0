use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::driver::{ParseVersionError, parse_pair};

/// A chip generation; displayed as `nvidia-smi -q` writes it.
///
/// Names and numbers are those of `NVML_DEVICE_ARCH_*` in nvml.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Architecture {
    Kepler,
    Maxwell,
    Pascal,
    Volta,
    Turing,
    Ampere,
    AdaLovelace,
    Hopper,
    Blackwell,
    /// A number that this version does not know.
    #[serde(untagged)]
    Other(u32),
}

impl Architecture {
    /// From NVML's number.
    pub fn from_nvml(number: u32) -> Self {
        match number {
            2 => Self::Kepler,
            3 => Self::Maxwell,
            4 => Self::Pascal,
            5 => Self::Volta,
            6 => Self::Turing,
            7 => Self::Ampere,
            8 => Self::AdaLovelace,
            9 => Self::Hopper,
            10 => Self::Blackwell,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AdaLovelace => f.pad("Ada Lovelace"),
            Self::Other(number) => f.pad(&format!("architecture {number}")),
            known => f.pad(&format!("{known:?}")),
        }
    }
}

/// A product line; displayed as `nvidia-smi -q` writes it.
///
/// Names and numbers are those of `nvmlBrandType_t` in nvml.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Brand {
    Quadro,
    Tesla,
    Nvs,
    Grid,
    GeForce,
    Titan,
    VApps,
    Vpc,
    Vcs,
    Vws,
    CloudGaming,
    QuadroRtx,
    NvidiaRtx,
    Nvidia,
    GeForceRtx,
    TitanRtx,
    /// A number that this version does not know.
    #[serde(untagged)]
    Other(u32),
}

impl Brand {
    /// From NVML's number; `None` for its own "unknown".
    pub fn from_nvml(number: u32) -> Option<Self> {
        Some(match number {
            0 => return None,
            1 => Self::Quadro,
            2 => Self::Tesla,
            3 => Self::Nvs,
            4 => Self::Grid,
            5 => Self::GeForce,
            6 => Self::Titan,
            7 => Self::VApps,
            8 => Self::Vpc,
            9 => Self::Vcs,
            10 => Self::Vws,
            11 => Self::CloudGaming,
            12 => Self::QuadroRtx,
            13 => Self::NvidiaRtx,
            14 => Self::Nvidia,
            15 => Self::GeForceRtx,
            16 => Self::TitanRtx,
            other => Self::Other(other),
        })
    }
}

impl fmt::Display for Brand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Quadro => "Quadro",
            Self::Tesla => "Tesla",
            Self::Nvs => "NVS",
            Self::Grid => "Grid",
            Self::GeForce => "GeForce",
            Self::Titan => "Titan",
            Self::VApps => "NVIDIA Virtual Applications",
            Self::Vpc => "NVIDIA Virtual PC",
            Self::Vcs => "NVIDIA Virtual Compute Server",
            Self::Vws => "NVIDIA RTX Virtual Workstation",
            Self::CloudGaming => "NVIDIA Cloud Gaming",
            Self::QuadroRtx => "Quadro RTX",
            Self::NvidiaRtx => "NVIDIA RTX",
            Self::Nvidia => "NVIDIA",
            Self::GeForceRtx => "GeForce RTX",
            Self::TitanRtx => "Titan RTX",
            Self::Other(number) => return f.pad(&format!("brand {number}")),
        })
    }
}

/// Who may use a GPU at once; displayed as `nvidia-smi -q` writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ComputeMode {
    /// Any number of processes.
    Default,
    /// One context, usable from one thread (no longer supported by drivers).
    ExclusiveThread,
    /// Nobody.
    Prohibited,
    /// One process.
    ExclusiveProcess,
    /// A number that this version does not know.
    #[serde(untagged)]
    Other(u32),
}

impl ComputeMode {
    /// From NVML's number.
    pub fn from_nvml(number: u32) -> Self {
        match number {
            0 => Self::Default,
            1 => Self::ExclusiveThread,
            2 => Self::Prohibited,
            3 => Self::ExclusiveProcess,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for ComputeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Default => "Default",
            Self::ExclusiveThread => "Exclusive_Thread",
            Self::Prohibited => "Prohibited",
            Self::ExclusiveProcess => "Exclusive_Process",
            Self::Other(number) => return f.pad(&format!("compute mode {number}")),
        })
    }
}

/// How a GPU shares addresses with the machine's processes; displayed as NVIDIA's tools write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AddressingMode {
    /// Not at all.
    None,
    /// By the kernel, which migrates pages (heterogeneous memory management).
    Hmm,
    /// By the hardware, which asks the processor's page tables (address translation services).
    Ats,
    /// A number that this version does not know.
    #[serde(untagged)]
    Other(u32),
}

impl AddressingMode {
    /// From NVML's number.
    pub fn from_nvml(number: u32) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Hmm,
            2 => Self::Ats,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for AddressingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "None",
            Self::Hmm => "HMM",
            Self::Ats => "ATS",
            Self::Other(number) => return f.pad(&format!("addressing mode {number}")),
        })
    }
}

/// What a GPU is to the machine that sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum VirtualizationMode {
    /// A GPU of a machine of metal.
    None,
    /// A whole GPU in a virtual machine.
    Passthrough,
    /// A virtual GPU in a virtual machine.
    Vgpu,
    /// A GPU that hosts virtual ones.
    HostVgpu,
    /// A GPU that hosts shared graphics.
    HostVsga,
    /// A number that this version does not know.
    #[serde(untagged)]
    Other(u32),
}

impl VirtualizationMode {
    /// From NVML's number.
    pub fn from_nvml(number: u32) -> Self {
        match number {
            0 => Self::None,
            1 => Self::Passthrough,
            2 => Self::Vgpu,
            3 => Self::HostVgpu,
            4 => Self::HostVsga,
            other => Self::Other(other),
        }
    }
}

/// A CUDA compute capability, written `9.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct ComputeCapability {
    /// 9 in `9.0`.
    pub major: u32,
    /// 0 in `9.0`.
    pub minor: u32,
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.major, self.minor))
    }
}

impl FromStr for ComputeCapability {
    type Err = ParseVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (major, minor) = parse_pair(text)?;
        Ok(Self { major, minor })
    }
}

impl TryFrom<String> for ComputeCapability {
    type Error = ParseVersionError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ComputeCapability> for String {
    fn from(capability: ComputeCapability) -> Self {
        capability.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_not_known_survive_json() {
        #[track_caller]
        fn check(architecture: Architecture, json: &str) {
            assert_eq!(serde_json::to_string(&architecture).unwrap(), json);
            assert_eq!(serde_json::from_str::<Architecture>(json).unwrap(), architecture);
        }
        check(Architecture::from_nvml(9), r#""hopper""#);
        check(Architecture::from_nvml(8), r#""ada_lovelace""#);
        check(Architecture::from_nvml(77), "77");
        assert_eq!(serde_json::to_string(&Brand::from_nvml(99)).unwrap(), "99");
        assert_eq!(
            serde_json::to_string(&ComputeMode::from_nvml(3)).unwrap(),
            r#""exclusive_process""#
        );
    }

    #[test]
    fn products_are_named_as_nvidia_smi_names_them() {
        assert_eq!(Architecture::from_nvml(9).to_string(), "Hopper");
        assert_eq!(Brand::from_nvml(14).unwrap().to_string(), "NVIDIA");
        assert_eq!(ComputeMode::from_nvml(0).to_string(), "Default");
        assert_eq!(Brand::from_nvml(0), None);
    }
}
