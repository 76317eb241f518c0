/// Whether the kubelet takes the name for an extended resource's, and so for one that a device plugin may offer.
///
/// The rule (`IsExtendedResourceName` in Kubernetes): a domain and a name, not Kubernetes' own domain, no prefix
/// `requests.`, and still a qualified name once quota has put that prefix before it.
///
/// ```
/// use gpu_kubelet::is_extended_resource_name;
///
/// assert!(is_extended_resource_name("example.com/widget"));
/// assert!(!is_extended_resource_name("requests.example.com/widget"));
/// ```
pub fn is_extended_resource_name(name: &str) -> bool {
    let Some((domain, local)) = name.split_once('/') else {
        return false;
    };
    !name.contains("kubernetes.io/")
        && !name.starts_with(QUOTA_PREFIX)
        && is_subdomain(&format!("{QUOTA_PREFIX}{domain}"))
        && is_local_name(local)
}

const QUOTA_PREFIX: &str = "requests.";

/// DNS-1123: labels of lower case letters, digits and inner hyphens, 253 characters in all.
fn is_subdomain(text: &str) -> bool {
    let in_label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 253
        && text
            .split('.')
            .all(|label| has_form(label, in_label, |c| in_label(c) || c == '-'))
}

/// Letters, digits and inner `-`, `_`, `.`, 63 characters in all.
fn is_local_name(text: &str) -> bool {
    let at_ends = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63 && has_form(text, at_ends, |c| at_ends(c) || matches!(c, '-' | '_' | '.'))
}

fn has_form(text: &str, at_ends: impl Fn(char) -> bool, within: impl Fn(char) -> bool) -> bool {
    text.starts_with(&at_ends) && text.ends_with(&at_ends) && text.chars().all(within)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: bool) {
        assert_eq!(is_extended_resource_name(name), expected, "{name:?}");
    }

    #[test]
    fn domain_and_name_are_taken() {
        check("nvidia.com/gpu", true);
        check("nvidia.com/mig-1g.10gb.me", true);
        check("nvidia.com/gpu.shared", true);
        check("a/B_c", true);
        check(&format!("a/{}", "x".repeat(63)), true);
    }

    #[test]
    fn everything_else_is_refused() {
        for name in [
            "",
            "gpu",
            "/gpu",
            "nvidia.com/",
            "a/b/c",
            "nvidia.com/gpu+me",
            "nvidia.com/-gpu",
            "NVIDIA.com/gpu",
        ] {
            check(name, false);
        }
        check("a..b/gpu", false);
        check("-a/gpu", false);
        check(&format!("a/{}", "x".repeat(64)), false);
        check(&format!("{}/gpu", "x.".repeat(123) + "y"), false); // 247 characters and the quota's 9
    }

    #[test]
    fn kubernetes_own_names_are_refused() {
        check("kubernetes.io/gpu", false);
        check("node.kubernetes.io/gpu", false);
        check("requests.nvidia.com/gpu", false);
    }
}
