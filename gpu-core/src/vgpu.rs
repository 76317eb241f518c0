use serde::{Deserialize, Serialize};

/// The mark of a virtual GPU in its PCI configuration space: the host's driver.
///
/// The vendor's own capability of a guest's device begins with `VF`; a GPU passed through whole has none such.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct VgpuHost {
    /// Version of the host's driver, e.g. `460.16`; absent where the mark does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_version: Option<String>,
    /// Branch of the host's driver, e.g. `r460_00`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_branch: Option<String>,
}

impl VgpuHost {
    /// How much of the configuration space is needed. An unprivileged reader gets 64 bytes.
    ///
    /// Read no more of sysfs's file `config`: the kernel asks the device for each byte. In a virtual machine with an H200 all of it,
    /// 4,096 bytes, took 23 ms, and these 2 ms.
    pub const CONFIG_SIZE: usize = 256;

    /// Looks for the mark in the first [256 bytes](Self::CONFIG_SIZE) of a device's configuration space.
    ///
    /// `Ok(None)` for a device without it, or where less was read.
    ///
    /// # Errors
    /// Where the space contradicts itself: a list of capabilities without end, or records that run over their capability.
    ///
    /// ```
    /// assert_eq!(gpu_core::VgpuHost::parse(&[0; 256])?, None);
    /// # Ok::<(), gpu_core::ParseVgpuError>(())
    /// ```
    pub fn parse(config: &[u8]) -> Result<Option<Self>, ParseVgpuError> {
        let Some(config) = config.first_chunk::<{ Self::CONFIG_SIZE }>() else {
            return Ok(None);
        };
        match vendor_capability(config)? {
            Some(capability) if capability.get(3..5) == Some(b"VF") => records(capability).map(Some),
            _ => Ok(None),
        }
    }
}

/// The vendor's own capability, by its length, from its first byte.
fn vendor_capability(config: &[u8; VgpuHost::CONFIG_SIZE]) -> Result<Option<&[u8]>, ParseVgpuError> {
    const STATUS: usize = 0x06;
    const HAS_CAPABILITIES: u8 = 0x10;
    const FIRST: usize = 0x34;
    const VENDOR_SPECIFIC: u8 = 0x09;
    /// The header is 64 bytes; a capability lies after it, and begins at a multiple of 4.
    const HEADER: usize = 0x40;
    if config[STATUS] & HAS_CAPABILITIES == 0 {
        return Ok(None);
    }
    let mut at = usize::from(config[FIRST] & !3);
    // There is room for this many, so that a list which is longer goes round.
    for _ in 0..(config.len() - HEADER) / 4 {
        if at < HEADER {
            return Ok(None);
        }
        // At 252 at most: its first four bytes are there.
        let (id, next, length) = (config[at], config[at + 1], usize::from(config[at + 2]));
        if id == VENDOR_SPECIFIC {
            let capability = config
                .get(at..at + length)
                .ok_or(ParseVgpuError::CapabilityEnds { at, length })?;
            return Ok(Some(capability));
        }
        at = usize::from(next & !3);
    }
    Err(ParseVgpuError::EndlessList)
}

/// The records in the capability: a kind, the whole record's length, and what it holds. Kind 0 holds version and branch.
fn records(capability: &[u8]) -> Result<VgpuHost, ParseVgpuError> {
    const FIRST: usize = 5;
    const FIELD: usize = 10;
    let mut at = FIRST;
    while let Some(&kind) = capability.get(at) {
        if kind == 0 {
            let field = |number: usize| {
                let from = at + 2 + number * FIELD;
                capability.get(from..from + FIELD).map(text)
            };
            let (version, branch) = field(0).zip(field(1)).ok_or(ParseVgpuError::RecordEnds { at })?;
            return Ok(VgpuHost {
                driver_version: version,
                driver_branch: branch,
            });
        }
        match capability.get(at + 1) {
            Some(&length) if length >= 2 => at += usize::from(length),
            _ => return Err(ParseVgpuError::RecordEnds { at }),
        }
    }
    Ok(VgpuHost::default())
}

fn text(field: &[u8]) -> Option<String> {
    let bytes: Vec<u8> = field.iter().copied().take_while(|b| *b != 0).collect();
    Some(String::from_utf8_lossy(&bytes).into_owned()).filter(|text| !text.is_empty())
}

/// A configuration space that contradicts itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseVgpuError {
    /// A list that leads back into itself.
    #[error("the list of PCI capabilities does not end")]
    EndlessList,
    /// A capability that is longer than the space.
    #[error("the PCI capability at byte {at} is {length} bytes long and ends beyond the configuration space")]
    CapabilityEnds {
        /// Where it begins.
        at: usize,
        /// The length it says it has.
        length: usize,
    },
    /// A record that is longer than its capability, or has no length.
    #[error("the record at byte {at} of the vendor's PCI capability is cut off")]
    RecordEnds {
        /// Where it begins in the capability.
        at: usize,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A space whose first capability is power management at 0x60 and whose second is the vendor's, at 0x68.
    fn config(capability: &[u8]) -> [u8; 256] {
        let mut config = [0; 256];
        config[..4].copy_from_slice(&[0xde, 0x10, 0xb0, 0x20]);
        config[0x06] = 0x10;
        config[0x34] = 0x60;
        config[0x60..0x63].copy_from_slice(&[0x01, 0x68, 0]);
        let at = 0x68;
        config[at] = 0x09;
        config[at + 2] = u8::try_from(capability.len() + 3).unwrap();
        config[at + 3..at + 3 + capability.len()].copy_from_slice(capability);
        config
    }

    #[track_caller]
    fn check(capability: &[u8], expected: Result<Option<(&str, &str)>, ParseVgpuError>) {
        let parsed = VgpuHost::parse(&config(capability));
        let expected = expected.map(|host| {
            host.map(|(version, branch)| {
                let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
                VgpuHost {
                    driver_version: known(version),
                    driver_branch: known(branch),
                }
            })
        });
        assert_eq!(parsed, expected);
    }

    #[test]
    fn a_guests_gpu_names_the_hosts_driver() {
        check(b"VF\0\x16460.16\0\0\0\0r460_00\0\0\0", Ok(Some(("460.16", "r460_00"))));
        // After another record, and filling their fields.
        check(
            b"VF\x07\x04ab\0\x16470.161.03r470_00abc",
            Ok(Some(("470.161.03", "r470_00abc"))),
        );
    }

    #[test]
    fn a_gpu_passed_through_whole_has_no_mark() {
        check(b"P2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", Ok(None));
        check(b"", Ok(None));
        assert_eq!(
            VgpuHost::parse(&[0xff; 64]),
            Ok(None),
            "as an unprivileged reader gets it"
        );
        let mut without = config(b"VF\0\x16460.16\0\0\0\0r460_00\0\0\0");
        without[0x06] = 0;
        assert_eq!(VgpuHost::parse(&without), Ok(None));
    }

    #[test]
    fn records_that_overrun_are_errors_and_no_panic_or_endless_loop() {
        check(b"VF\x07\x00", Err(ParseVgpuError::RecordEnds { at: 5 }));
        check(b"VF\x07", Err(ParseVgpuError::RecordEnds { at: 5 }));
        check(b"VF\0\x16460.16\0\0\0\0r460", Err(ParseVgpuError::RecordEnds { at: 5 }));
        check(b"VF\x07\xff", Ok(Some(("", "")))); // the last record: nothing follows
        let mut long = config(b"VF");
        long[0x6a] = 200;
        let error = VgpuHost::parse(&long).unwrap_err();
        assert_eq!(error, ParseVgpuError::CapabilityEnds { at: 0x68, length: 200 });
    }

    #[test]
    fn a_list_of_capabilities_that_goes_round_is_an_error() {
        let mut round = config(b"VF");
        round[0x68] = 0x05;
        round[0x69] = 0x60;
        assert_eq!(VgpuHost::parse(&round), Err(ParseVgpuError::EndlessList));
    }

    proptest! {
        #[test]
        fn any_space_parses_or_is_refused(mut config: [u8; 256], length in 0usize..=256) {
            let _ = VgpuHost::parse(&config[..length]);
            config[0x06] |= 0x10;
            let _ = VgpuHost::parse(&config);
        }

        #[test]
        fn any_mark_parses_or_is_refused(records in prop::collection::vec(any::<u8>(), 0..140)) {
            let _ = VgpuHost::parse(&config(&[b"VF", records.as_slice()].concat()));
        }
    }
}
