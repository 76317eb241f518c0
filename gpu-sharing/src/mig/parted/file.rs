use std::{collections::BTreeMap, fmt, str::FromStr};

use gpu_core::{Gpu, PciId};

use crate::mig::{Demand, Profile, Wanted};

/// A file of configurations: each a name and what it asks of a node's GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Configs {
    /// By name.
    pub configs: BTreeMap<String, Vec<Spec>>,
}

/// One configuration of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it asks, in the order of the file; of several that match a GPU the last counts, as with the vendor's programs.
    pub specs: &'a [Spec],
}

/// What some GPUs of a node are to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Only GPUs of these PCI ids; empty for any.
    pub device_filter: Vec<DeviceFilter>,
    /// Which of these.
    pub devices: Devices,
    /// Whether MIG mode is on.
    pub mig_enabled: bool,
    /// Profiles and how many of each a GPU has; a count of 0 is none.
    pub mig_devices: BTreeMap<Profile, u32>,
}

/// Which GPUs of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Devices {
    /// All that the filter lets through and that can do MIG.
    All,
    /// Those of these indices, in PCI order from 0.
    Indices(Vec<u32>),
}

/// A PCI id, and perhaps the board's: `0x20B010DE` or `0x20B010DE:0x134710DE`, device before vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceFilter {
    /// Device and vendor, as NVML packs them (`pciDeviceId`).
    pub device: u32,
    /// Device and vendor of the board (`pciSubSystemId`).
    pub subsystem: Option<u32>,
}

impl Configs {
    /// The configuration of that name, or the only one if no name is given.
    ///
    /// # Errors
    /// If there is none, or several and no name.
    pub fn named<'a>(&'a self, name: Option<&str>) -> Result<Config<'a>, NoSuchConfig> {
        let found = match name {
            Some(name) => self.configs.get_key_value(name),
            None if self.configs.len() == 1 => self.configs.first_key_value(),
            None => None,
        };
        match found {
            Some((name, specs)) => Ok(Config { name, specs }),
            None => Err(NoSuchConfig {
                name: name.map(str::to_owned),
                known: self.configs.keys().cloned().collect(),
            }),
        }
    }
}

/// A name that no configuration of the file has, or no name where the file has several.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", match name {
    Some(name) => format!("there is no configuration `{name}` (there are: {})", shortened(known)),
    None => format!("say which configuration: there are {}", shortened(known)),
})]
pub struct NoSuchConfig {
    /// What was asked for.
    pub name: Option<String>,
    /// What there is.
    pub known: Vec<String>,
}

/// The vendor's own file has some ninety.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 12;
    let more = names.len().saturating_sub(SHOWN);
    let text = names[..names.len() - more].join(", ");
    if more > 0 {
        format!("{text} and {more} more")
    } else {
        text
    }
}

impl Spec {
    /// What a GPU is to be that this is about.
    pub fn wanted(&self) -> Wanted {
        if self.mig_enabled {
            Wanted::Instances(
                self.mig_devices
                    .iter()
                    .map(|(profile, &n)| (profile.clone(), n))
                    .collect::<Demand>(),
            )
        } else {
            Wanted::Disabled
        }
    }

    /// Whether the filter lets a GPU through.
    pub fn lets_through(&self, gpu: &Gpu) -> bool {
        self.device_filter.is_empty() || self.device_filter.iter().any(|filter| filter.matches(gpu))
    }
}

impl Devices {
    /// Whether an index is among them.
    pub fn contains(&self, index: u32) -> bool {
        match self {
            Self::All => true,
            Self::Indices(indices) => indices.contains(&index),
        }
    }
}

impl DeviceFilter {
    /// The filter for GPUs of the kind of this one, whatever their board.
    pub fn of(gpu: &Gpu) -> Self {
        Self {
            device: packed(gpu.pci.id),
            subsystem: None,
        }
    }

    fn matches(self, gpu: &Gpu) -> bool {
        let board = || gpu.pci.subsystem_id.map(packed);
        self.device == packed(gpu.pci.id) && (self.subsystem.is_none() || self.subsystem == board())
    }
}

fn packed(id: PciId) -> u32 {
    u32::from(id.device) << 16 | u32::from(id.vendor)
}

impl fmt::Display for DeviceFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:08X}", self.device)?;
        self.subsystem.map_or(Ok(()), |board| write!(f, ":0x{board:08X}"))
    }
}

impl FromStr for DeviceFilter {
    type Err = ParseDeviceFilterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| {
            let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
            let hex = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
            hex.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
        };
        let parsed = match text.split_once(':') {
            None => number(text).map(|device| Self {
                device,
                subsystem: None,
            }),
            Some((device, board)) => number(device).zip(number(board)).map(|(device, board)| Self {
                device,
                subsystem: Some(board),
            }),
        };
        parsed.ok_or_else(|| ParseDeviceFilterError { text: text.to_owned() })
    }
}

/// A text that is no device filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no device filter: expected PCI ids in hexadecimal, device before vendor, as `0x20B010DE` or `0x20B010DE:0x134710DE`"
)]
pub struct ParseDeviceFilterError {
    text: String,
}
