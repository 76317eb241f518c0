use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The kind of the devices of one spec: `vendor/class`, for example `nvidia.com/gpu`.
///
/// Vendor and class start with a letter, end with a letter or digit and hold letters, digits, `_`, `-` and `.` between:
/// what the CDI library accepts, which is wider than the DNS names its document speaks of.
///
/// ```
/// let kind: gpu_cdi::Kind = "nvidia.com/gpu".parse()?;
/// assert_eq!((kind.vendor(), kind.class()), ("nvidia.com", "gpu"));
/// # Ok::<(), gpu_cdi::ParseNameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Kind {
    vendor: String,
    class: String,
}

impl Kind {
    /// A kind from its two parts.
    ///
    /// # Errors
    /// If a part breaks the rules above.
    pub fn new(vendor: &str, class: &str) -> Result<Self, ParseNameError> {
        check("vendor", vendor, |b| b.is_ascii_alphabetic(), b"_-.")?;
        check("class", class, |b| b.is_ascii_alphabetic(), b"_-.")?;
        Ok(Self {
            vendor: vendor.to_owned(),
            class: class.to_owned(),
        })
    }

    /// The part before the slash.
    pub fn vendor(&self) -> &str {
        &self.vendor
    }

    /// The part after the slash.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// The kind whose class has one more word behind a dot.
    pub(crate) fn with_subclass(&self, word: &'static str) -> Self {
        Self {
            vendor: self.vendor.clone(),
            class: format!("{}.{word}", self.class),
        }
    }

    /// The name that the CDI library gives the file of a kind, without extension: `vendor-class`.
    pub fn file_stem(&self) -> String {
        format!("{}-{}", self.vendor, self.class)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.vendor, self.class)
    }
}

impl FromStr for Kind {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (vendor, class) = text
            .split_once('/')
            .ok_or_else(|| ParseNameError::new("kind", text, "expected `vendor/class`"))?;
        Self::new(vendor, class)
    }
}

impl TryFrom<String> for Kind {
    type Error = ParseNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Kind> for String {
    fn from(kind: Kind) -> Self {
        kind.to_string()
    }
}

/// The name of a device within its kind, for example `0`, `0:1` or `GPU-…`.
///
/// It starts and ends with a letter or digit and holds letters, digits, `_`, `.`, `:` and `-` between.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceName(String);

impl DeviceName {
    /// The name as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether only CDI 0.5.0 and later take it.
    pub(crate) fn starts_with_digit(&self) -> bool {
        self.0.starts_with(|c: char| c.is_ascii_digit())
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for DeviceName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for DeviceName {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        check("device name", text, |b| b.is_ascii_alphanumeric(), b"_.:-")?;
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for DeviceName {
    type Error = ParseNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<DeviceName> for String {
    fn from(name: DeviceName) -> Self {
        name.0
    }
}

/// What a container asks for: a device with its kind, `vendor/class=name`.
///
/// ```
/// let name: gpu_cdi::QualifiedName = "nvidia.com/gpu=0".parse()?;
/// assert_eq!(name.to_string(), "nvidia.com/gpu=0");
/// assert!("nvidia.com/gpu".parse::<gpu_cdi::QualifiedName>().is_err());
/// # Ok::<(), gpu_cdi::ParseNameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct QualifiedName {
    /// The kind.
    pub kind: Kind,
    /// The device within it.
    pub name: DeviceName,
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.name)
    }
}

impl FromStr for QualifiedName {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, name) = text
            .split_once('=')
            .ok_or_else(|| ParseNameError::new("qualified name", text, "expected `vendor/class=name`"))?;
        Ok(Self {
            kind: kind.parse()?,
            name: name.parse()?,
        })
    }
}

impl TryFrom<String> for QualifiedName {
    type Error = ParseNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<QualifiedName> for String {
    fn from(name: QualifiedName) -> Self {
        name.to_string()
    }
}

/// A text that is no CDI name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a CDI {what}: {reason}")]
pub struct ParseNameError {
    what: &'static str,
    text: String,
    reason: &'static str,
}

impl ParseNameError {
    pub(crate) fn new(what: &'static str, text: &str, reason: &'static str) -> Self {
        Self {
            what,
            text: text.to_owned(),
            reason,
        }
    }
}

fn check(what: &'static str, text: &str, first: impl Fn(u8) -> bool, inner: &[u8]) -> Result<(), ParseNameError> {
    let error = |reason| Err(ParseNameError::new(what, text, reason));
    let (Some(&head), Some(&tail)) = (text.as_bytes().first(), text.as_bytes().last()) else {
        return error("it is empty");
    };
    if !first(head) {
        return error("it starts with a character that may not stand there");
    }
    if !tail.is_ascii_alphanumeric() {
        return error("it must end with a letter or digit");
    }
    if !text.bytes().all(|b| b.is_ascii_alphanumeric() || inner.contains(&b)) {
        return error("it holds a character that may not stand there");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_names_follow_the_cdi_grammar() {
        #[track_caller]
        fn check(text: &str, valid: bool) {
            assert_eq!(text.parse::<QualifiedName>().is_ok(), valid, "{text}");
        }
        check("nvidia.com/gpu=0", true);
        check("nvidia.com/gpu=0:1", true);
        check(
            "k8s.device-plugin.nvidia.com/gpu=GPU-01000100-0000-0000-0000-000000000000",
            true,
        );
        check("nvidia.com/gpu.shared_x=a", true);
        check("nvidia.com/gpu=", false);
        check("nvidia.com/=0", false);
        check("/gpu=0", false);
        check("/dev/nvidia0", false);
        check("nvidia.com/gpu", false);
        check("0vidia.com/gpu=0", false);
        check("nvidia.com/gpu-=0", false);
        check("nvidia.com/gpu=-0", false);
        check("nvidia.com/gpu=0:", false);
        check("nvidia.com/gpu=a b", false);
        check("nvidia.com/a/b=0", false);
        check("nvidia.com/gpu=a=b", false);
        check("nvidia.com/gpü=0", false);
    }
}
