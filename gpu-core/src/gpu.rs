use serde::{Deserialize, Serialize};

use crate::{
    AddressingMode, Architecture, Brand, ComputeCapability, ComputeMode, Fabric, GpuUuid, Mig, NvLink, Pci,
    RecoveryAction, VgpuHost, VirtualizationMode,
};

/// One physical GPU.
///
/// Optional fields are `None` where the GPU, its driver or the caller's permissions do not offer the value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// NVML's index: the position in PCI order among the GPUs of the node, lost ones included.
    pub index: u32,
    /// The number in `/dev/nvidia<minor>` (`nvmlDeviceGetMinorNumber`); need not equal the index.
    pub minor: u32,
    /// The identifier that stays with the board (`nvmlDeviceGetUUID`).
    pub uuid: GpuUuid,
    /// The model, e.g. `NVIDIA H200` (`nvmlDeviceGetName`).
    pub name: String,
    /// The product line (`nvmlDeviceGetBrand`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brand: Option<Brand>,
    /// The chip's generation (`nvmlDeviceGetArchitecture`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<Architecture>,
    /// What CUDA code the chip runs (`nvmlDeviceGetCudaComputeCapability`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<ComputeCapability>,
    /// Size of the framebuffer; absent where the GPU shares the machine's memory (GB10).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Where the GPU is plugged in.
    pub pci: Pci,
    /// The NUMA node that the PCI slot belongs to (`/sys/bus/pci/devices/<address>/numa_node`, absent if negative).
    ///
    /// Not the node of the GPU's own memory, which `nvmlDeviceGetNumaNodeId` reports on coherent machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// The NUMA node that the GPU's own memory forms on coherent machines (`nvmlDeviceGetNumaNodeId`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_numa_node: Option<u32>,
    /// The PCIe root complex above it as the kernel names it, e.g. `pci0000:64` (where `/sys/bus/pci/devices/<address>`
    /// leads).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_root: Option<String>,
    /// How it shares addresses with the machine's processes (`nvmlDeviceGetAddressingMode`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addressing_mode: Option<AddressingMode>,
    /// Whether it is passed through to this machine, or a virtual one (`nvmlDeviceGetVirtualizationMode`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtualization: Option<VirtualizationMode>,
    /// The mark of a virtual GPU, the host's driver (`/sys/bus/pci/devices/<address>/config`); read by the privileged alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vgpu_host: Option<VgpuHost>,
    /// Its place on the base board (`nvmlDeviceGetModuleId`), by which the fabric manager names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module_id: Option<u32>,
    /// The NVLink fabric it belongs to; `None` where there is none beyond the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<Fabric>,
    /// Its NVLinks, by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nvlinks: Vec<NvLink>,
    /// Partitioning into GPU instances; `None` where the GPU cannot do it (`nvmlDeviceGetMigMode`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<Mig>,
    /// Error correction of the memory (`nvmlDeviceGetEccMode`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecc: Option<Ecc>,
    /// Memory rows replaced by spare ones, from Ampere on (`nvmlDeviceGetRemappedRows`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remapped_rows: Option<RemappedRows>,
    /// Whether memory pages wait for a reboot to be retired, before Ampere (`nvmlDeviceGetRetiredPagesPendingStatus`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_retirement_pending: Option<bool>,
    /// What has to be done before it is sound again, as the driver sees it (`NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`); `None`
    /// where nothing has, or the driver does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_action: Option<RecoveryAction>,
    /// Who may use the GPU at once (`nvmlDeviceGetComputeMode`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_mode: Option<ComputeMode>,
    /// Whether the driver keeps the GPU initialised without clients (`nvmlDeviceGetPersistenceMode`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence_mode: Option<bool>,
    /// The power limit and its bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerLimit>,
    /// The PCI Express link at its best.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_link: Option<PcieLink>,
    /// The serial number printed on the board (`nvmlDeviceGetSerial`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// The board's part number (`nvmlDeviceGetBoardPartNumber`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub board_part_number: Option<String>,
    /// Version of the video BIOS (`nvmlDeviceGetVbiosVersion`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vbios_version: Option<String>,
}

impl Gpu {
    /// Whether the GPU is partitioned, so that it cannot be used whole.
    pub fn mig_enabled(&self) -> bool {
        self.mig.as_ref().is_some_and(|mig| mig.enabled)
    }

    /// Whether it drives a workstation's displays and is not for computing, which its name tells (DGX Station). The
    /// vendor's programs pass over it (go-nvlib v0.12.0, `pkg/nvlib/device`).
    pub fn is_display_only(&self) -> bool {
        matches!(self.name.as_str(), "DGX Display" | "NVIDIA DGX Display")
    }
}

/// Framebuffer sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// The whole framebuffer, with what the driver reserves (`nvmlDeviceGetMemoryInfo_v2`, `total`).
    pub total_bytes: u64,
    /// What the driver and the firmware keep (`reserved`); unknown on drivers before 510.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_bytes: Option<u64>,
}

impl Memory {
    /// The whole framebuffer in MiB, rounded down as `nvidia-smi` does.
    pub fn total_mib(&self) -> u64 {
        self.total_bytes >> 20
    }
}

/// Error correction of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Ecc {
    /// The mode in force.
    pub enabled: bool,
    /// The mode after the next reboot.
    pub pending_enabled: bool,
    /// Errors since the driver was loaded that could not be corrected (`nvmlDeviceGetTotalEccErrors`, volatile).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncorrected_since_load: Option<u64>,
    /// Errors over the board's life that could not be corrected (aggregate).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncorrected_in_life: Option<u64>,
}

/// Memory rows that were replaced by spare ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RemappedRows {
    /// Rows replaced after errors that could be corrected (`corrRows`).
    pub correctable: u32,
    /// Rows replaced after errors that could not (`uncRows`).
    pub uncorrectable: u32,
    /// A row waits for a reset to be replaced (`isPending`).
    pub pending: bool,
    /// A row could not be replaced: the board is due for return (`failureOccurred`).
    pub failed: bool,
}

/// Power limits in milliwatts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PowerLimit {
    /// The limit in force (`nvmlDeviceGetEnforcedPowerLimit`).
    pub limit_mw: u32,
    /// The board's own limit (`nvmlDeviceGetPowerManagementDefaultLimit`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_mw: Option<u32>,
    /// The lowest limit that can be set (`nvmlDeviceGetPowerManagementLimitConstraints`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_mw: Option<u32>,
    /// The highest limit that can be set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_mw: Option<u32>,
}

/// A PCI Express link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PcieLink {
    /// The newest generation that GPU and slot share (`nvmlDeviceGetMaxPcieLinkGeneration`).
    pub max_generation: u32,
    /// The number of lanes that GPU and slot share (`nvmlDeviceGetMaxPcieLinkWidth`).
    pub max_width: u32,
}
