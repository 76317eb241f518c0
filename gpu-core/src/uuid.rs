use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The identifier of a physical GPU: `GPU-` and an RFC 4122 UUID in lower case.
///
/// It stays with the board wherever it is plugged in (`nvmlDeviceGetUUID`).
///
/// ```
/// let uuid: gpu_core::GpuUuid = "GPU-7a675969-0a3d-4f9c-8a6e-1b2c3d4e5f60".parse()?;
/// assert_eq!(uuid.as_str(), "GPU-7a675969-0a3d-4f9c-8a6e-1b2c3d4e5f60");
/// assert!("7a675969-0a3d-4f9c-8a6e-1b2c3d4e5f60".parse::<gpu_core::GpuUuid>().is_err());
/// # Ok::<(), gpu_core::ParseGpuUuidError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct GpuUuid(String);

impl GpuUuid {
    /// The identifier with its prefix.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for GpuUuid {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for GpuUuid {
    type Err = ParseGpuUuidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("GPU-") {
            Some(uuid) if is_uuid(uuid) => Ok(Self(text.to_owned())),
            _ => Err(ParseGpuUuidError { text: text.to_owned() }),
        }
    }
}

impl TryFrom<String> for GpuUuid {
    type Error = ParseGpuUuidError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<GpuUuid> for String {
    fn from(uuid: GpuUuid) -> Self {
        uuid.0
    }
}

/// The identifier of a MIG device: `MIG-` and an RFC 4122 UUID in lower case.
///
/// Drivers before 470 write `MIG-GPU-<uuid>/<GPU instance>/<compute instance>`, which is read as well. It goes with the
/// compute instance (`nvmlDeviceGetUUID`).
///
/// ```
/// let uuid: gpu_core::MigUuid = "MIG-7a675969-0a3d-5f9c-8a6e-1b2c3d4e5f60".parse()?;
/// assert_eq!(uuid.as_str(), "MIG-7a675969-0a3d-5f9c-8a6e-1b2c3d4e5f60");
/// # Ok::<(), gpu_core::ParseMigUuidError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct MigUuid(String);

impl MigUuid {
    /// The identifier with its prefix.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MigUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for MigUuid {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for MigUuid {
    type Err = ParseMigUuidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let valid = text
            .strip_prefix("MIG-")
            .is_some_and(|rest| match rest.strip_prefix("GPU-") {
                Some(old) => is_old_mig(old),
                None => is_uuid(rest),
            });
        if valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseMigUuidError { text: text.to_owned() })
        }
    }
}

impl TryFrom<String> for MigUuid {
    type Error = ParseMigUuidError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<MigUuid> for String {
    fn from(uuid: MigUuid) -> Self {
        uuid.0
    }
}

/// `<uuid>/<number>/<number>`.
fn is_old_mig(text: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    match *text.split('/').collect::<Vec<_>>().as_slice() {
        [uuid, gpu_instance, compute_instance] => is_uuid(uuid) && number(gpu_instance) && number(compute_instance),
        _ => false,
    }
}

/// 8-4-4-4-12 lower-case hexadecimal digits, as the driver writes them.
fn is_uuid(text: &str) -> bool {
    let groups: Vec<_> = text.split('-').collect();
    let hex = |group: &&str| group.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(hex)
}

/// A text that is no GPU UUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a GPU UUID: expected `GPU-` and 8-4-4-4-12 lower-case hexadecimal digits")]
pub struct ParseGpuUuidError {
    text: String,
}

/// A text that is no MIG UUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a MIG UUID: expected `MIG-` and 8-4-4-4-12 lower-case hexadecimal digits")]
pub struct ParseMigUuidError {
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_drivers_form_is_a_gpu_uuid() {
        #[track_caller]
        fn check(text: &str, valid: bool) {
            assert_eq!(text.parse::<GpuUuid>().is_ok(), valid, "{text}");
        }
        check("GPU-01000100-0000-0000-0000-000000000000", true);
        check("GPU-01000100-0000-0000-0000-00000000000", false);
        check("GPU-01000100-0000-0000-000000000000-0000", false);
        check("GPU-0100010G-0000-0000-0000-000000000000", false);
        check("MIG-01000100-0000-0000-0000-000000000000", false);
        check("gpu-01000100-0000-0000-0000-000000000000", false);
        check("GPU-", false);
        check("", false);
    }

    #[test]
    fn both_forms_that_drivers_write_are_mig_uuids() {
        #[track_caller]
        fn check(text: &str, valid: bool) {
            assert_eq!(text.parse::<MigUuid>().is_ok(), valid, "{text}");
        }
        check("MIG-01000100-0000-0000-0000-000000000000", true);
        check("MIG-GPU-01000100-0000-0000-0000-000000000000/7/0", true);
        check("MIG-GPU-01000100-0000-0000-0000-000000000000/7/", false);
        check("MIG-GPU-01000100-0000-0000-0000-000000000000/7/0/1", false);
        check("MIG-GPU-01000100-0000-0000-0000-000000000000", false);
        check("GPU-01000100-0000-0000-0000-000000000000", false);
        check("MIG-", false);
    }
}
