use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The NVIDIA driver of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Driver {
    /// Kernel driver version, e.g. `580.159.04` (`nvmlSystemGetDriverVersion`).
    pub version: DriverVersion,
    /// Version of the NVML library, e.g. `13.580.159.04` (`nvmlSystemGetNVMLVersion`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvml_version: Option<String>,
    /// Newest CUDA that the driver runs (`nvmlSystemGetCudaDriverVersion_v2`, or the first version where libcuda is not
    /// loadable).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda_version: Option<CudaVersion>,
    /// The branch that the driver was built from, e.g. `r580_95` (`nvmlSystemGetDriverBranch`); from 550 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
}

/// A driver version: two or three numbers joined by dots, kept as the driver writes them (`580.159.04`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct DriverVersion {
    text: String,
    major: u32,
}

impl DriverVersion {
    /// The version as the driver writes it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The first number, which names the driver generation: 580 in `580.159.04`.
    pub fn major(&self) -> u32 {
        self.major
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl FromStr for DriverVersion {
    type Err = ParseVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |part: &str| {
            part.bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| part.parse::<u32>().ok())
                .flatten()
        };
        let numbers: Option<Vec<_>> = text.split('.').map(number).collect();
        match numbers.as_deref() {
            Some(&([major, _] | [major, _, _])) => Ok(Self {
                text: text.to_owned(),
                major,
            }),
            _ => Err(ParseVersionError {
                text: text.to_owned(),
                expected: "two or three numbers joined by dots",
            }),
        }
    }
}

impl TryFrom<String> for DriverVersion {
    type Error = ParseVersionError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<DriverVersion> for String {
    fn from(version: DriverVersion) -> Self {
        version.text
    }
}

/// A CUDA version: major and minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct CudaVersion {
    /// 13 in `13.0`.
    pub major: u32,
    /// 0 in `13.0`.
    pub minor: u32,
}

impl CudaVersion {
    /// From NVML's number, 1000 × major + 10 × minor.
    pub fn from_nvml(number: u32) -> Self {
        Self {
            major: number / 1000,
            minor: number % 1000 / 10,
        }
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for CudaVersion {
    type Err = ParseVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (major, minor) = parse_pair(text)?;
        Ok(Self { major, minor })
    }
}

impl TryFrom<String> for CudaVersion {
    type Error = ParseVersionError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<CudaVersion> for String {
    fn from(version: CudaVersion) -> Self {
        version.to_string()
    }
}

/// Two numbers joined by a dot.
pub(crate) fn parse_pair(text: &str) -> Result<(u32, u32), ParseVersionError> {
    text.split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .ok_or_else(|| ParseVersionError {
            text: text.to_owned(),
            expected: "two numbers joined by a dot",
        })
}

/// A text that is no version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a version: expected {expected}")]
pub struct ParseVersionError {
    text: String,
    expected: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_versions_have_two_or_three_numbers() {
        #[track_caller]
        fn check(text: &str, major: Option<u32>) {
            let parsed = text.parse::<DriverVersion>().ok();
            assert_eq!(parsed.as_ref().map(DriverVersion::major), major);
            assert_eq!(parsed.map(String::from).as_deref(), major.map(|_| text));
        }
        check("580.159.04", Some(580));
        check("470.82", Some(470));
        check("580", None);
        check("580.1.2.3", None);
        check("580.+1", None);
        check("580..04", None);
        check("", None);
        check("r580.1", None);
    }

    #[test]
    fn cuda_versions_come_from_nvml_numbers() {
        #[track_caller]
        fn check(number: u32, expected: &str) {
            assert_eq!(CudaVersion::from_nvml(number).to_string(), expected);
        }
        check(12080, "12.8");
        check(13000, "13.0");
        check(11040, "11.4");
    }
}
