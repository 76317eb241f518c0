use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The name of an extended resource, with its domain: `nvidia.com/gpu`.
///
/// A name without a domain is NVIDIA's. What follows the domain is a DNS subdomain in lower case; 63 characters in all at
/// most.
///
/// ```
/// use gpu_sharing::config::ResourceName;
/// let name: ResourceName = "gpu".parse()?;
/// assert_eq!(name.as_str(), "nvidia.com/gpu");
/// assert_eq!(name.shared()?.as_str(), "nvidia.com/gpu.shared");
/// assert_eq!("example.com/widget".parse::<ResourceName>()?.socket_name(), "example-widget.sock");
/// # Ok::<(), gpu_sharing::config::ParseResourceNameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ResourceName(String);

impl ResourceName {
    /// The domain of NVIDIA's names, with the slash.
    pub const PREFIX: &str = "nvidia.com/";
    /// The longest name, domain included (k8s-device-plugin v0.20.0, `api/config/v1/resources.go`).
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

    /// The part before the slash.
    pub fn domain(&self) -> &str {
        self.0.split_once('/').map_or("", |(domain, _)| domain)
    }

    /// The name without the domain.
    pub fn base(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, base)| base)
    }

    /// The file name of a plugin's socket: the first word of the domain and the name, as the vendor's plugin has it.
    pub fn socket_name(&self) -> String {
        let word = self.domain().split('.').next().unwrap_or_default();
        format!("{word}-{}.sock", self.base())
    }

    /// A name in a configuration file of the vendor's, where all are NVIDIA's.
    pub(super) fn nvidia(text: &str) -> Result<Self, ParseResourceNameError> {
        let base = text.strip_prefix(Self::PREFIX).unwrap_or(text);
        match format!("{}{base}", Self::PREFIX) {
            name if name.len() > Self::MAX_LEN => Err(ParseResourceNameError::TooLong { name }),
            _ if !is_subdomain(base) => Err(ParseResourceNameError::Format { name: base.to_owned() }),
            name => Ok(Self(name)),
        }
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
        let Some((domain, base)) = text.split_once('/').filter(|(domain, _)| *domain != "nvidia.com") else {
            return Self::nvidia(text);
        };
        if text.len() > Self::MAX_LEN {
            return Err(ParseResourceNameError::TooLong { name: text.to_owned() });
        }
        // What Kubernetes keeps for itself (`pkg/apis/core/v1/helper/helpers.go`, `IsExtendedResourceName`).
        let reserved =
            domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") || domain.starts_with("requests.");
        if !is_subdomain(domain) || reserved {
            return Err(ParseResourceNameError::Domain { name: text.to_owned() });
        }
        if !is_subdomain(base) {
            return Err(ParseResourceNameError::Format { name: base.to_owned() });
        }
        Ok(Self(text.to_owned()))
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
    /// A domain that is no DNS name, or one that Kubernetes keeps for itself.
    #[error(
        "`{name}` is not an extended resource name: its domain is not a DNS name in lower case, or Kubernetes' own"
    )]
    Domain {
        /// The whole name.
        name: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(parsed: Result<ResourceName, ParseResourceNameError>, expected: Result<&str, &str>) {
        match (parsed, expected) {
            (Ok(name), Ok(expected)) => assert_eq!(name.as_str(), expected),
            (Err(error), Err(expected)) => assert!(error.to_string().starts_with(expected), "{error}"),
            (parsed, expected) => panic!("{parsed:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn names_get_the_domain_and_are_dns_names() {
        for parse in [ResourceName::nvidia, |text: &str| text.parse()] {
            let check = |text: &str, expected| check(parse(text), expected);
            check("gpu", Ok("nvidia.com/gpu"));
            check("nvidia.com/gpu.shared", Ok("nvidia.com/gpu.shared"));
            let longest = format!("nvidia.com/{}", "x".repeat(52));
            check(&"x".repeat(52), Ok(&longest));
            check(
                &"x".repeat(53),
                Err("fully-qualified resource name must be 63 characters or less: nvidia.com/xx"),
            );
            check("GPU", Err("incorrect format for resource name 'GPU': "));
            check(
                "mig-1g.5gb+me",
                Err("incorrect format for resource name 'mig-1g.5gb+me': "),
            );
            check("", Err("incorrect format for resource name '': "));
            check("gpu.", Err("incorrect format"));
            check("nvidia.com/../x", Err("incorrect format"));
            check("nvidia.com/gpu/x", Err("incorrect format"));
        }
    }

    #[test]
    fn names_of_a_configuration_file_are_nvidias() {
        check(
            ResourceName::nvidia("example.com/gpu"),
            Err("incorrect format for resource name 'example.com/gpu': "),
        );
        check("example.com/gpu".parse(), Ok("example.com/gpu"));
    }

    #[test]
    fn kubernetes_keeps_some_domains_for_itself() {
        let refused = "`{}` is not an extended resource name: its domain";
        for name in [
            "node.kubernetes.io/gpu",
            "kubernetes.io/gpu",
            "requests.nvidia.com/gpu",
            "/gpu",
            "A.com/gpu",
        ] {
            check(name.parse(), Err(&refused.replace("{}", name)));
        }
    }

    #[test]
    fn resource_names_give_the_vendors_socket_names() {
        #[track_caller]
        fn check(name: &str, socket: &str) {
            assert_eq!(name.parse::<ResourceName>().unwrap().socket_name(), socket);
        }
        check("nvidia.com/gpu", "nvidia-gpu.sock");
        check("nvidia.com/gpu.shared", "nvidia-gpu.shared.sock");
        check("nvidia.com/mig-1g.10gb.me", "nvidia-mig-1g.10gb.me.sock");
        check("example.com/widget", "example-widget.sock");
    }
}
