use std::fmt;

use serde::{Deserialize, Serialize};

use crate::PciAddress;

/// The NVLink fabric that a GPU belongs to beyond its node (`nvmlDeviceGetGpuFabricInfoV`, or the call without versions).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Fabric {
    /// How far the GPU's registration at the fabric has come (`state`).
    pub state: FabricState,
    /// NVML's code with which registering ended (`status`); absent for success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<u32>,
    /// The fabric's identifier, 8-4-4-4-12 hexadecimal digits (`clusterUuid`); absent where it is all zeros.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_uuid: Option<String>,
    /// The number of the set of GPUs within the fabric that can reach each other (`cliqueId`); known once registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clique: Option<u32>,
    /// NVML's `NVML_GPU_FABRIC_HEALTH_MASK_*` (`healthMask`); unknown on drivers before 550.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_mask: Option<u32>,
}

/// How far a GPU has come to join its fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FabricState {
    /// It has not begun.
    NotStarted,
    /// It is under way.
    InProgress,
    /// It is done, well or not: see [`Fabric::error`].
    Completed,
    /// A number that this version does not know.
    #[serde(untagged)]
    Other(u32),
}

impl FabricState {
    /// From NVML's number; `None` for a GPU that has no fabric.
    pub fn from_nvml(number: u32) -> Option<Self> {
        Some(match number {
            0 => return None,
            1 => Self::NotStarted,
            2 => Self::InProgress,
            3 => Self::Completed,
            other => Self::Other(other),
        })
    }
}

/// One NVLink of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NvLink {
    /// Its number on the GPU.
    pub link: u32,
    /// Whether it is up (`nvmlDeviceGetNvLinkState`).
    pub active: bool,
    /// What it leads to (`nvmlDeviceGetNvLinkRemoteDeviceType`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<NvLinkRemote>,
    /// The PCI address of what it leads to (`nvmlDeviceGetNvLinkRemotePciInfo_v2`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_pci: Option<PciAddress>,
}

/// What an NVLink leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NvLinkRemote {
    /// Another GPU.
    Gpu,
    /// A processor of IBM's.
    Npu,
    /// An NVSwitch.
    Switch,
    /// A number that this version does not know.
    #[serde(untagged)]
    Other(u32),
}

impl NvLinkRemote {
    /// From NVML's number; `None` for its own "unknown".
    pub fn from_nvml(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Gpu,
            1 => Self::Npu,
            2 => Self::Switch,
            255 => return None,
            other => Self::Other(other),
        })
    }
}

/// What lies between two GPUs of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GpuPair {
    /// The indices of the two, the lower one first.
    pub gpus: [u32; 2],
    /// The nearest part of the machine above both (`nvmlDeviceGetTopologyCommonAncestor`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_ancestor: Option<CommonAncestor>,
    /// Whether the first can read the second's memory (`nvmlDeviceGetP2PStatus`, `NVML_P2P_CAPS_INDEX_READ`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p2p_read: Option<P2pStatus>,
    /// Whether the first can write the second's memory (`NVML_P2P_CAPS_INDEX_WRITE`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p2p_write: Option<P2pStatus>,
    /// Whether NVLink carries it (`NVML_P2P_CAPS_INDEX_NVLINK`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p2p_nvlink: Option<P2pStatus>,
}

/// The nearest part of a machine above two GPUs, from the closest to the farthest.
///
/// Displayed as `nvidia-smi topo -m` writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CommonAncestor {
    /// The board that both sit on.
    Board,
    /// One PCIe switch.
    SingleSwitch,
    /// Several PCIe switches.
    MultipleSwitches,
    /// The host bridge.
    HostBridge,
    /// The NUMA node, over the links between its host bridges.
    NumaNode,
    /// The machine, over the links between its NUMA nodes.
    System,
    /// A number that this version does not know.
    #[serde(untagged)]
    Other(u32),
}

impl CommonAncestor {
    /// From NVML's number, `NVML_TOPOLOGY_*`.
    pub fn from_nvml(number: u32) -> Self {
        match number {
            0 => Self::Board,
            10 => Self::SingleSwitch,
            20 => Self::MultipleSwitches,
            30 => Self::HostBridge,
            40 => Self::NumaNode,
            50 => Self::System,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for CommonAncestor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Board => "PSB",
            Self::SingleSwitch => "PIX",
            Self::MultipleSwitches => "PXB",
            Self::HostBridge => "PHB",
            Self::NumaNode => "NODE",
            Self::System => "SYS",
            Self::Other(number) => return f.pad(&format!("level {number}")),
        })
    }
}

/// Whether one GPU can reach another's memory directly, or why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum P2pStatus {
    /// It can.
    Ok,
    /// The chipset does not allow it.
    ChipsetNotSupported,
    /// The GPU does not.
    GpuNotSupported,
    /// What lies between them does not.
    TopologyNotSupported,
    /// A setting of the driver forbids it.
    DisabledBySetting,
    /// It is not possible for another reason.
    NotSupported,
    /// A number that this version does not know.
    #[serde(untagged)]
    Other(u32),
}

impl P2pStatus {
    /// From NVML's number, `NVML_P2P_STATUS_*`; `None` for its own "unknown".
    pub fn from_nvml(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Ok,
            1 => Self::ChipsetNotSupported,
            2 => Self::GpuNotSupported,
            3 => Self::TopologyNotSupported,
            4 => Self::DisabledBySetting,
            5 => Self::NotSupported,
            6 => return None,
            other => Self::Other(other),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors_are_ordered_from_near_to_far() {
        let levels = [0, 10, 20, 30, 40, 50].map(CommonAncestor::from_nvml);
        assert!(levels.is_sorted());
        assert_eq!(
            levels.map(|level| level.to_string()),
            ["PSB", "PIX", "PXB", "PHB", "NODE", "SYS"]
        );
    }

    #[test]
    fn a_gpu_without_fabric_has_no_state() {
        assert_eq!(FabricState::from_nvml(0), None);
        assert_eq!(FabricState::from_nvml(3), Some(FabricState::Completed));
        assert_eq!(serde_json::to_string(&FabricState::from_nvml(9)).unwrap(), "9");
    }
}
