use serde::Deserialize;

use crate::{
    data::{self, Catalog, catalog},
    mig::ModeRules,
};

/// What NVML answers for one model of board, apart from what differs between two boards of that model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Board {
    /// The name used in `node.yaml`, such as `H200-141GB`.
    pub name: String,
    /// The product name that NVML answers.
    pub product: String,
    /// `nvmlBrandType_t`.
    pub brand: u32,
    /// `nvmlDeviceArchitecture_t`.
    pub architecture: u32,
    /// CUDA compute capability, major and minor.
    pub compute_capability: (i32, i32),
    /// CUDA cores of the whole board.
    pub cuda_cores: u32,
    /// Memory sizes.
    pub memory: Memory,
    /// PCI ids and link.
    pub pci: PciIds,
    /// VBIOS version.
    pub vbios: String,
    /// Board part number.
    pub part_number: String,
    /// Version of the infoROM image.
    pub inforom_image: String,
    /// First digits of the 13-digit serial number.
    pub serial_prefix: String,
    /// Power limits and idle draw.
    pub power: Power,
    /// Temperatures and thresholds.
    pub temperature: Temperature,
    /// Clocks.
    pub clocks: Clocks,
    /// Memory banks that can still remap a row; none on architectures before Ampere.
    pub remappable_banks: u32,
    /// Whether memory errors are corrected.
    #[serde(default)]
    pub ecc: Ecc,
    /// Whether the GPU shares the processor's address space over NVLink-C2C.
    #[serde(default)]
    pub coherent: bool,
    /// Name of the board's [`MigTable`](crate::MigTable). A board without one cannot be partitioned and answers MIG calls
    /// with `NOT_SUPPORTED`.
    pub mig: Option<String>,
    /// Bit mask of the NVML events the board can report.
    pub event_types: u64,
}

impl Board {
    /// `NVML_DEVICE_ARCH_AMPERE`.
    const AMPERE: u32 = 7;

    /// What a change of MIG mode takes on a node with that `nvmlGpuVirtualizationMode_t`.
    pub(crate) fn mode_rules(&self, virtualization: u32) -> ModeRules {
        ModeRules {
            by_reset: self.architecture == Self::AMPERE,
            passed_through: virtualization == 1,
        }
    }
}

/// Error correction of a [`Board`]'s memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ecc {
    /// In force.
    #[default]
    On,
    /// The board has it, and it is off.
    Off,
    /// The board does not have it.
    Absent,
}

/// Memory sizes of a [`Board`].
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Memory {
    pub total_bytes: u64,
    pub reserved_bytes: u64,
    pub bus_width_bits: u32,
    pub bar1_total_bytes: u64,
    pub bar1_used_bytes: u64,
    /// Whether NVML answers memory sizes; not where the memory is the processor's.
    #[serde(default = "yes")]
    pub reported: bool,
}

fn yes() -> bool {
    true
}

/// PCI ids and link of a [`Board`]. The vendor is always NVIDIA, 0x10de.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names say it")]
pub struct PciIds {
    pub device: u16,
    pub subsystem_device: u16,
    /// Base class, subclass and programming interface, one byte each.
    pub class: u32,
    pub revision: u8,
    pub link_generation: u32,
    pub link_width: u32,
}

impl PciIds {
    /// NVIDIA's PCI vendor id.
    pub const VENDOR: u16 = 0x10de;
}

/// Power of a [`Board`], in milliwatts. The default limit is also the highest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Power {
    pub default_mw: u32,
    pub min_mw: u32,
    pub idle_mw: u32,
}

/// Temperatures of a [`Board`], in degrees Celsius.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Temperature {
    pub idle_c: u32,
    pub memory_idle_c: u32,
    pub shutdown_c: u32,
    pub slowdown_c: u32,
    pub gpu_max_c: u32,
    pub memory_max_c: u32,
}

/// Clocks of a [`Board`]. The streaming multiprocessors run at the graphics clock.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Clocks {
    pub graphics: Clock,
    pub memory: Clock,
    pub video: Clock,
}

/// One clock, in MHz.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Clock {
    pub idle_mhz: u32,
    pub max_mhz: u32,
}

static BOARDS: Catalog<Board> = catalog!(data::BOARDS);

/// The boards that can be simulated, by name.
pub fn boards() -> impl Iterator<Item = &'static Board> {
    BOARDS.all()
}

/// The board of that name; upper and lower case are the same.
pub(crate) fn find(name: &str) -> Option<&'static Board> {
    BOARDS.find("name", name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_board_file_is_a_board() {
        for text in data::BOARDS {
            let board: Board = serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{text}{error}"));
            assert!(board.memory.reserved_bytes < board.memory.total_bytes, "{}", board.name);
            let mig = board.mig.as_deref();
            assert_eq!(
                mig.and_then(crate::mig::find).is_some(),
                mig.is_some(),
                "{}",
                board.name
            );
            assert_eq!(find(&board.name).map(|found| &found.name), Some(&board.name));
        }
    }
}
