use std::{borrow::Borrow, fmt, str::FromStr};

/// The key of a label, with its domain: `nvidia.com/gpu.product`.
///
/// A DNS subdomain of at most 253 characters, a slash, and a name of at most 63 letters, digits, `-`, `_` and `.` with a
/// letter or digit at either end. Kubernetes' keys without a domain are the user's own, so there are none here.
///
/// ```
/// let key: gpu_labels::LabelKey = "nvidia.com/gpu.product".parse()?;
/// assert!("nvidia.com/mig-1g.10gb+me".parse::<gpu_labels::LabelKey>().is_err());
/// # Ok::<(), gpu_labels::ParseLabelKeyError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LabelKey(String);

impl LabelKey {
    /// The key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the slash.
    pub fn domain(&self) -> &str {
        self.0.split_once('/').map_or("", |(domain, _)| domain)
    }
}

impl Borrow<str> for LabelKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LabelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for LabelKey {
    type Err = ParseLabelKeyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let valid = text.split_once('/').is_some_and(|(domain, name)| {
            is_subdomain(domain) && !name.is_empty() && crate::value::is_label_value(name)
        });
        if valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseLabelKeyError { text: text.to_owned() })
        }
    }
}

/// DNS-1123: labels of lower-case letters, digits and inner dashes, joined by dots; 253 characters in all.
fn is_subdomain(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|label| {
            let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            label.bytes().all(inner) && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
        })
}

/// A text that is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not the key of a label: expected a domain, a slash and at most 63 letters, digits, `-`, `_` and `.`"
)]
pub struct ParseLabelKeyError {
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_that_kubernetes_takes() {
        #[track_caller]
        fn check(text: &str, valid: bool) {
            assert_eq!(text.parse::<LabelKey>().is_ok(), valid, "{text}");
        }
        check("nvidia.com/gpu.product", true);
        check("feature.node.kubernetes.io/pci-0302_10de.present", true);
        check(&format!("nvidia.com/{}", "x".repeat(63)), true);
        check(&format!("nvidia.com/{}", "x".repeat(64)), false);
        check("gpu.product", false);
        check("nvidia.com/", false);
        check("nvidia.com/-x", false);
        check("nvidia.com/x.", false);
        check("nvidia.com/x/y", false);
        check("Nvidia.com/x", false);
        check("/x", false);
    }
}
