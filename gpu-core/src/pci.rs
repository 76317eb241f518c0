use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Where a GPU sits on the PCI bus and what it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Pci {
    /// Domain, bus, device and function (`nvmlDeviceGetPciInfo_v3`, `busId`).
    pub address: PciAddress,
    /// Vendor and device (`pciDeviceId`).
    pub id: PciId,
    /// Vendor and device of the board (`pciSubSystemId`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subsystem_id: Option<PciId>,
}

/// A PCI address: domain, bus, device, function.
///
/// It is read in either form, with a domain of four digits as the kernel writes it (`0000:1a:00.0`) or of eight as NVML
/// does (`00000000:1A:00.0`), and written in the kernel's. Ordered as NVML orders GPUs.
///
/// ```
/// let address: gpu_core::PciAddress = "00000000:1A:00.0".parse()?;
/// assert_eq!(address.to_string(), "0000:1a:00.0");
/// # Ok::<(), gpu_core::ParsePciAddressError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl PciAddress {
    /// The PCI domain (segment); more than 16 bits on some machines with many root ports.
    pub fn domain(self) -> u32 {
        self.domain
    }

    /// The bus within the domain.
    pub fn bus(self) -> u8 {
        self.bus
    }

    /// The device on the bus, 0 to 31.
    pub fn device(self) -> u8 {
        self.device
    }

    /// The function of the device, 0 to 7.
    pub fn function(self) -> u8 {
        self.function
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        f.pad(&format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
    }
}

impl FromStr for PciAddress {
    type Err = ParsePciAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParsePciAddressError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<PciAddress> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let hex = |digits: &str, widths: &[usize]| {
        let valid = widths.contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
        valid.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    };
    let address = PciAddress {
        domain: hex(domain, &[4, 5, 6, 7, 8])?,
        bus: u8::try_from(hex(bus, &[2])?).ok()?,
        device: u8::try_from(hex(device, &[2])?).ok()?,
        function: u8::try_from(hex(function, &[1])?).ok()?,
    };
    (address.device < 32 && address.function < 8).then_some(address)
}

impl TryFrom<String> for PciAddress {
    type Error = ParsePciAddressError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> Self {
        address.to_string()
    }
}

/// A text that is no PCI address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a PCI address: expected domain:bus:device.function in hexadecimal, e.g. `0000:1a:00.0`")]
pub struct ParsePciAddressError {
    text: String,
}

/// A PCI vendor and device number, written `10de:2335`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct PciId {
    /// The vendor: 0x10de is NVIDIA.
    pub vendor: u16,
    /// The vendor's number for the device.
    pub device: u16,
}

impl PciId {
    /// NVIDIA's PCI vendor number.
    pub const NVIDIA: u16 = 0x10de;

    /// From NVML's number: the device in the upper half, the vendor in the lower.
    pub fn from_nvml(number: u32) -> Self {
        let [device_high, device_low, vendor_high, vendor_low] = number.to_be_bytes();
        Self {
            vendor: u16::from_be_bytes([vendor_high, vendor_low]),
            device: u16::from_be_bytes([device_high, device_low]),
        }
    }
}

impl fmt::Display for PciId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:04x}", self.vendor, self.device)
    }
}

impl FromStr for PciId {
    type Err = ParsePciIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let part = |digits: &str| {
            let valid = digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_hexdigit());
            valid.then(|| u16::from_str_radix(digits, 16).ok()).flatten()
        };
        text.split_once(':')
            .and_then(|(vendor, device)| {
                Some(Self {
                    vendor: part(vendor)?,
                    device: part(device)?,
                })
            })
            .ok_or_else(|| ParsePciIdError { text: text.to_owned() })
    }
}

impl TryFrom<String> for PciId {
    type Error = ParsePciIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<PciId> for String {
    fn from(id: PciId) -> Self {
        id.to_string()
    }
}

/// A text that is no PCI vendor and device number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a PCI id: expected vendor:device in hexadecimal, e.g. `10de:2335`")]
pub struct ParsePciIdError {
    text: String,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_widths_of_the_domain_are_the_same_address() {
        #[track_caller]
        fn check(text: &str, expected: Option<&str>) {
            assert_eq!(
                text.parse::<PciAddress>().ok().map(|a| a.to_string()).as_deref(),
                expected
            );
        }
        check("0000:1a:00.0", Some("0000:1a:00.0"));
        check("00000000:1A:00.0", Some("0000:1a:00.0"));
        check("00010000:00:1f.7", Some("10000:00:1f.7"));
        check("10000:00:1f.7", Some("10000:00:1f.7"));
        check("0000:1a:20.0", None);
        check("0000:1a:00.8", None);
        check("0000:1a:00", None);
        check("1a:00.0", None);
        check("+000:1a:00.0", None);
    }

    #[test]
    fn nvml_packs_the_vendor_into_the_lower_half() {
        assert_eq!(PciId::from_nvml(590_680_286).to_string(), "10de:2335"); // measured on an H200
        assert_eq!(PciId::from_nvml(415_174_878).to_string(), "10de:18bf");
    }

    proptest! {
        #[test]
        fn addresses_survive_text(domain: u32, bus: u8, device in 0u8..32, function in 0u8..8) {
            let address = PciAddress { domain, bus, device, function };
            prop_assert_eq!(address.to_string().parse::<PciAddress>().unwrap(), address);
        }

        #[test]
        fn any_text_parses_or_is_refused(text in ".*") {
            let _ = text.parse::<PciAddress>();
            let _ = text.parse::<PciId>();
        }
    }
}
