use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The name of an extended resource, with its domain: `nvidia.com/gpu`.
///
/// A name without `nvidia.com/` gets it, and what follows is a DNS subdomain in lower case; 63 characters in all at most.
///
/// ```
/// use gpu_sharing::config::ResourceName;
/// let name: ResourceName = "gpu".parse()?;
/// assert_eq!(name.as_str(), "nvidia.com/gpu");
/// assert_eq!(name.shared()?.as_str(), "nvidia.com/gpu.shared");
/// # Ok::<(), gpu_sharing::config::ParseResourceNameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ResourceName(String);

impl ResourceName {
    /// The domain of every name.
    pub const PREFIX: &str = "nvidia.com/";
    /// The longest name, domain included.
    pub const MAX_LEN: usize = 63;

    /// Whole GPUs: `nvidia.com/gpu`.
    pub fn gpu() -> Self {
        Self(format!("{}gpu", Self::PREFIX))
    }

    /// The MIG devices of a profile: `nvidia.com/mig-1g.10gb.me` for `1g.10gb+me`, since a name takes no plus.
    ///
    /// # Errors
    /// Where the profile's name makes no resource's.
    pub fn mig(profile: &str) -> Result<Self, ParseResourceNameError> {
        format!("mig-{}", profile.replace('+', ".")).parse()
    }

    /// The name under which replicas are offered by default: with `.shared`.
    ///
    /// # Errors
    /// Where it becomes too long.
    pub fn shared(&self) -> Result<Self, ParseResourceNameError> {
        format!("{self}.shared").parse()
    }

    /// The whole name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name without the domain.
    pub fn base(&self) -> &str {
        self.0.strip_prefix(Self::PREFIX).unwrap_or(&self.0)
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for ResourceName {
    type Err = ParseResourceNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let base = text.strip_prefix(Self::PREFIX).unwrap_or(text);
        let name = format!("{}{base}", Self::PREFIX);
        if name.len() > Self::MAX_LEN {
            return Err(ParseResourceNameError::TooLong { name });
        }
        if !is_subdomain(base) {
            return Err(ParseResourceNameError::Format { name: base.to_owned() });
        }
        Ok(Self(name))
    }
}

impl TryFrom<String> for ResourceName {
    type Error = ParseResourceNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ResourceName> for String {
    fn from(name: ResourceName) -> Self {
        name.0
    }
}

/// DNS-1123: labels of lower-case letters, digits and inner dashes, joined by dots.
fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|label| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        label.bytes().all(inner) && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    })
}

/// A text that is no resource name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseResourceNameError {
    /// More than [`ResourceName::MAX_LEN`] characters with the domain.
    #[error("fully-qualified resource name must be 63 characters or less: {name}")]
    TooLong {
        /// The name with its domain.
        name: String,
    },
    /// No DNS subdomain; upper case and `+` among the reasons.
    #[error(
        "incorrect format for resource name '{name}': expected lower-case letters, digits, `-` and `.`, with a letter or digit \
         at either end"
    )]
    Format {
        /// The name without its domain.
        name: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_the_domain_and_are_dns_names() {
        #[track_caller]
        fn check(text: &str, expected: Result<&str, &str>) {
            match (text.parse::<ResourceName>(), expected) {
                (Ok(name), Ok(expected)) => assert_eq!(name.as_str(), expected),
                (Err(error), Err(expected)) => assert!(error.to_string().starts_with(expected), "{error}"),
                (parsed, expected) => panic!("{parsed:?}, expected {expected:?}"),
            }
        }
        check("gpu", Ok("nvidia.com/gpu"));
        check("nvidia.com/gpu.shared", Ok("nvidia.com/gpu.shared"));
        check(&"x".repeat(52), Ok(&format!("nvidia.com/{}", "x".repeat(52))));
        check(
            &"x".repeat(53),
            Err("fully-qualified resource name must be 63 characters or less: nvidia.com/xx"),
        );
        check(
            "example.com/gpu",
            Err("incorrect format for resource name 'example.com/gpu': "),
        );
        check("GPU", Err("incorrect format for resource name 'GPU': "));
        check(
            "mig-1g.5gb+me",
            Err("incorrect format for resource name 'mig-1g.5gb+me': "),
        );
        check("", Err("incorrect format for resource name '': "));
        check("gpu.", Err("incorrect format"));
    }
}
