use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A version of the CDI specification.
///
/// Only the versions that were released exist; another one makes a spec unreadable for every consumer. A leading `v` is
/// accepted and dropped.
///
/// ```
/// use gpu_cdi::Version;
///
/// assert!("0.5.0".parse::<Version>()? < Version::V0_7_0);
/// assert!("0.5.1".parse::<Version>().is_err());
/// # Ok::<(), gpu_cdi::ParseVersionError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
#[non_exhaustive]
pub enum Version {
    /// 0.1.0, never tagged.
    V0_1_0,
    /// 0.2.0, never tagged.
    V0_2_0,
    /// 0.3.0, the first tagged one.
    V0_3_0,
    /// 0.4.0: `mounts[].type`.
    V0_4_0,
    /// 0.5.0: `deviceNodes[].hostPath`, and device names that start with a digit.
    V0_5_0,
    /// 0.6.0: annotations, and a dot in the class.
    V0_6_0,
    /// 0.7.0: `intelRdt` and `additionalGids`.
    V0_7_0,
    /// 0.8.0: changed the Go library only.
    V0_8_0,
    /// 1.0.0: changed the Go library only.
    V1_0_0,
    /// 1.1.0: `netDevices`, and more of `intelRdt`.
    V1_1_0,
}

impl Version {
    /// The newest version that this crate knows.
    pub const CURRENT: Self = Self::V1_1_0;

    /// Every version, oldest first.
    pub const ALL: [Self; 10] = [
        Self::V0_1_0,
        Self::V0_2_0,
        Self::V0_3_0,
        Self::V0_4_0,
        Self::V0_5_0,
        Self::V0_6_0,
        Self::V0_7_0,
        Self::V0_8_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];

    /// The version as it is written in a spec.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_4_0 => "0.4.0",
            Self::V0_5_0 => "0.5.0",
            Self::V0_6_0 => "0.6.0",
            Self::V0_7_0 => "0.7.0",
            Self::V0_8_0 => "0.8.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<Version> for &'static str {
    fn from(version: Version) -> Self {
        version.as_str()
    }
}

impl FromStr for Version {
    type Err = ParseVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.strip_prefix('v').unwrap_or(text);
        Self::ALL
            .into_iter()
            .find(|version| version.as_str() == number)
            .ok_or_else(|| ParseVersionError { text: text.to_owned() })
    }
}

impl TryFrom<String> for Version {
    type Error = ParseVersionError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// A text that is no known CDI version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a CDI version: the newest known is {}", Version::CURRENT)]
pub struct ParseVersionError {
    text: String,
}
