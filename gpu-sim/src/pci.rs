use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A PCI address: domain, bus, device, function. Orders as the bus is scanned.
///
/// # Example
///
/// ```
/// let address: gpu_sim::PciAddress = "0000:1A:00.0".parse()?;
/// assert_eq!(address.to_string(), "0000:1a:00.0");
/// # Ok::<(), gpu_sim::ParsePciAddressError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

impl PciAddress {
    /// The domain.
    pub fn domain(self) -> u32 {
        self.domain
    }

    /// The bus within the domain.
    pub fn bus(self) -> u8 {
        self.bus
    }

    /// The device on the bus.
    pub fn device(self) -> u8 {
        self.device
    }

    /// The function of the device.
    pub fn function(self) -> u8 {
        self.function
    }

    /// As NVML writes it: eight digits of domain, upper case.
    pub fn nvml(self) -> String {
        format!(
            "{:08X}:{:02X}:{:02X}.{:X}",
            self.domain, self.bus, self.device, self.function
        )
    }

    /// As NVML wrote it before version 3: four digits of domain, upper case.
    pub fn nvml_legacy(self) -> String {
        format!(
            "{:04X}:{:02X}:{:02X}.{:X}",
            self.domain & 0xffff,
            self.bus,
            self.device,
            self.function
        )
    }

    /// Name of the root complex in sysfs, such as `pci0000:1a`.
    pub fn root(self) -> String {
        format!("pci{:04x}:{:02x}", self.domain, self.bus)
    }
}

/// As sysfs writes it: four digits of domain, lower case.
impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04x}:{:02x}:{:02x}.{:x}",
            self.domain, self.bus, self.device, self.function
        )
    }
}

/// Takes what `nvmlDeviceGetHandleByPciBusId` takes (measured): the domain and the function may be absent.
impl FromStr for PciAddress {
    type Err = ParsePciAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParsePciAddressError(text.to_owned());
        let number = |part: &str, digits: usize| {
            let well_formed = (1..=digits).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            well_formed
                .then(|| u32::from_str_radix(part, 16).ok())
                .flatten()
                .ok_or_else(error)
        };
        let byte = |part: &str| number(part, 2).and_then(|value| u8::try_from(value).map_err(|_| error()));

        let parts: Vec<&str> = text.split(':').collect();
        let (domain, bus, rest) = match parts.as_slice() {
            [domain, bus, rest] => (number(domain, 8)?, *bus, *rest),
            [bus, rest] => (0, *bus, *rest),
            _ => return Err(error()),
        };
        let (device, function) = rest.split_once('.').unwrap_or((rest, "0"));
        let address = Self {
            domain,
            bus: byte(bus)?,
            device: byte(device)?,
            function: byte(function)?,
        };
        if address.device < 32 && address.function < 8 {
            Ok(address)
        } else {
            Err(error())
        }
    }
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

/// The text is no PCI address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no PCI address such as 0000:1a:00.0")]
pub struct ParsePciAddressError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(
            text.parse::<PciAddress>()
                .ok()
                .map(|address| address.to_string())
                .as_deref(),
            expected,
            "{text}"
        );
    }

    #[test]
    fn domain_and_function_may_be_absent() {
        check("0000:00:06.0", Some("0000:00:06.0"));
        check("00000000:1A:00.0", Some("0000:1a:00.0"));
        check("00:06.0", Some("0000:00:06.0"));
        check("0000:00:06", Some("0000:00:06.0"));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "bad",
            "::",
            "0000:00:20.0",
            "0000:00:06.8",
            "0000:100:00.0",
            "0:0:+1.0",
            "0000:00:06.0.0",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn addresses_order_as_the_bus_is_scanned() {
        let parse = |text: &str| text.parse::<PciAddress>().unwrap();
        assert!(parse("0000:ff:00.0") < parse("0001:00:00.0"));
        assert!(parse("0000:1a:00.0") < parse("0000:1b:00.0"));
    }
}
