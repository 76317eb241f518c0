//! Devices named by annotations of a container.

use std::fmt::Write as _;

use crate::{ParseNameError, QualifiedName};

/// What annotations that name CDI devices begin with.
pub const ANNOTATION_PREFIX: &str = "cdi.k8s.io/";

/// The most characters of an annotation's name after its prefix (Kubernetes).
const LIMIT: usize = 63;

/// The annotation by which a device plugin names the devices of one allocation: its key and value.
///
/// ```
/// let (key, value) = gpu_cdi::annotation("nvidia-device-plugin", "a/b", &["nvidia.com/gpu=0".parse()?])?;
/// assert_eq!((key.as_str(), value.as_str()), ("cdi.k8s.io/nvidia-device-plugin_a_b", "nvidia.com/gpu=0"));
/// # Ok::<(), gpu_cdi::ParseNameError>(())
/// ```
///
/// # Errors
/// If plugin and id do not make a key, e.g. because they are too long together.
pub fn annotation(plugin: &str, id: &str, devices: &[QualifiedName]) -> Result<(String, String), ParseNameError> {
    let name = format!("{plugin}_{}", id.replace('/', "_"));
    let error = |reason| Err(ParseNameError::new("annotation", &name, reason));
    let ends = |c: char| c.is_ascii_alphanumeric();
    if name.len() > LIMIT {
        return error("it is longer than 63 characters");
    }
    if plugin.is_empty() || id.is_empty() {
        return error("plugin and id must not be empty");
    }
    if !name.starts_with(ends) || !name.ends_with(ends) {
        return error("it must begin and end with a letter or digit");
    }
    if name.contains(|c: char| !c.is_ascii_alphanumeric() && !"_-.".contains(c)) {
        return error("it may hold letters, digits, `_`, `-` and `.`");
    }
    let mut value = String::new();
    for (i, device) in devices.iter().enumerate() {
        let _ = write!(value, "{}{device}", if i == 0 { "" } else { "," });
    }
    Ok((format!("{ANNOTATION_PREFIX}{name}"), value))
}

/// The devices that annotations with one of the prefixes name, in the order given.
///
/// # Errors
/// The first name that is none.
pub fn annotated_devices<'a>(
    annotations: impl IntoIterator<Item = (&'a str, &'a str)>,
    prefixes: &[&str],
) -> Result<Vec<QualifiedName>, ParseNameError> {
    let mut devices = Vec::new();
    for (key, value) in annotations {
        if prefixes.iter().any(|prefix| key.starts_with(prefix)) {
            for name in value.split(',') {
                devices.push(name.trim().parse()?);
            }
        }
    }
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let devices: Vec<QualifiedName> = ["nvidia.com/gpu=0", "nvidia.com/gpu=1:2"]
            .map(|name| name.parse().unwrap())
            .to_vec();
        let (key, value) = annotation("plugin", "0", &devices).unwrap();
        let all = [(key.as_str(), value.as_str()), ("other", "x")];
        assert_eq!(annotated_devices(all, &[ANNOTATION_PREFIX]).unwrap(), devices);
        assert_eq!(
            annotated_devices([("cdi.k8s.io/x", "0")], &[ANNOTATION_PREFIX])
                .unwrap_err()
                .to_string(),
            "`0` is not a CDI qualified name: expected `vendor/class=name`"
        );
    }

    #[test]
    fn impossible_keys_are_refused() {
        for (plugin, id) in [("", "a"), ("p", ""), ("-p", "a"), ("p", "a b"), ("p", &"x".repeat(62))] {
            assert!(annotation(plugin, id, &[]).is_err(), "{plugin} {id}");
        }
    }
}
