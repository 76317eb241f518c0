use std::{fmt, str::FromStr};

use gpu_kubelet::is_extended_resource_name;

/// The name of an extended resource: a domain, a slash and a name, as in `nvidia.com/gpu`.
///
/// ```
/// let name: gpu_plugin::ResourceName = "nvidia.com/gpu".parse()?;
/// assert_eq!(name.socket_name(), "nvidia-gpu.sock");
/// # Ok::<(), gpu_plugin::ParseResourceNameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(String);

impl ResourceName {
    /// The longest name, domain included, that the vendor's plugin accepts (k8s-device-plugin v0.20.0, `api/config/v1/resources.go`).
    pub const MAX_LEN: usize = 63;

    /// The whole name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The file name of the plugin's socket: the first word of the domain and the name, as the vendor's plugin has it.
    pub fn socket_name(&self) -> String {
        let (domain, name) = self.0.split_once('/').unwrap_or(("", &self.0));
        let word = domain.split('.').next().unwrap_or(domain);
        format!("{word}-{name}.sock")
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
        let error = |reason| {
            Err(ParseResourceNameError {
                text: text.to_owned(),
                reason,
            })
        };
        let Some((_, name)) = text.split_once('/') else {
            return error("there is no `/` between a domain and a name");
        };
        if text.len() > Self::MAX_LEN {
            return error("it is longer than 63 characters");
        }
        if !is_extended_resource_name(text) {
            return error("the kubelet registers no resource of this name");
        }
        // The kubelet takes upper case and `_` here, the vendor's plugin does not.
        if !is_subdomain(name) {
            return error("the name is not a DNS name in lower case");
        }
        Ok(Self(text.to_owned()))
    }
}

/// A DNS-1123 subdomain: labels of lower-case letters, digits and inner dashes, joined by dots.
fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|label| {
        let bytes = label.as_bytes();
        let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
        let outer = |b: Option<&u8>| b.is_some_and(|b| *b != b'-');
        bytes.iter().all(inner) && outer(bytes.first()) && outer(bytes.last())
    })
}

/// A text that is no extended resource name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an extended resource name: {reason}")]
pub struct ParseResourceNameError {
    text: String,
    reason: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_names_give_the_vendors_socket_names() {
        #[track_caller]
        fn check(text: &str, socket: Option<&str>) {
            let socket_name = text.parse::<ResourceName>().ok().map(|name| name.socket_name());
            assert_eq!(socket_name.as_deref(), socket, "{text}");
        }
        check("nvidia.com/gpu", Some("nvidia-gpu.sock"));
        check("nvidia.com/gpu.shared", Some("nvidia-gpu.shared.sock"));
        check("nvidia.com/mig-1g.10gb.me", Some("nvidia-mig-1g.10gb.me.sock"));
        check("example.com/widget", Some("example-widget.sock"));
        check("gpu", None);
        check("nvidia.com/GPU", None);
        check("nvidia.com/mig-1g.10gb+me", None);
        check("nvidia.com/", None);
        check("/gpu", None);
        check("nvidia.com/gpu/x", None);
        check("nvidia.com/../x", None);
        check("node.kubernetes.io/gpu", None);
        check("requests.nvidia.com/gpu", None);
        check(
            &format!("nvidia.com/{}", "x".repeat(52)),
            Some(&format!("nvidia-{}.sock", "x".repeat(52))),
        );
        check(&format!("nvidia.com/{}", "x".repeat(53)), None);
    }
}
