use std::collections::{BTreeMap, BTreeSet};

use super::{ContainerEdits, IntelRdt, Spec};

/// The part of a spec that breaks a rule of CDI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid CDI spec: `{at}` {reason}")]
pub struct InvalidSpec {
    /// Where, as a path of keys: `devices[0].containerEdits.env[1]`.
    pub at: String,
    /// What is wrong with it.
    pub reason: String,
}

impl Spec {
    /// Checks the rules of CDI, as every consumer will.
    ///
    /// Stricter than the CDI library in one point: annotation keys and their total size follow the Kubernetes rules,
    /// which the library means to check but does not.
    ///
    /// # Errors
    /// The first rule that is broken, with its place.
    pub fn validate(&self) -> Result<(), InvalidSpec> {
        annotations("annotations", &self.annotations)?;
        for (i, device) in self.devices.iter().enumerate() {
            annotations(&format!("devices[{i}].annotations"), &device.annotations)?;
        }
        self.validate_as_library()
    }

    /// Checks what the CDI library checks of a file that it reads: all but annotations.
    pub(crate) fn validate_as_library(&self) -> Result<(), InvalidSpec> {
        if self.devices.is_empty() {
            return invalid("devices", "is empty");
        }
        let mut names = BTreeSet::new();
        for (i, device) in self.devices.iter().enumerate() {
            let at = format!("devices[{i}]");
            if !names.insert(&device.name) {
                return invalid(format!("{at}.name"), format!("`{}` is there twice", device.name));
            }
            if device.container_edits.is_empty() {
                return invalid(format!("{at}.containerEdits"), "is empty");
            }
            edits(&format!("{at}.containerEdits"), &device.container_edits)?;
        }
        edits("containerEdits", &self.container_edits)?;
        let required = self.required_version();
        if self.cdi_version < required {
            return invalid(
                "cdiVersion",
                format!("must be at least {required} for what the spec uses"),
            );
        }
        Ok(())
    }
}

fn invalid(at: impl Into<String>, reason: impl Into<String>) -> Result<(), InvalidSpec> {
    Err(InvalidSpec {
        at: at.into(),
        reason: reason.into(),
    })
}

fn edits(at: &str, edits: &ContainerEdits) -> Result<(), InvalidSpec> {
    env(&format!("{at}.env"), &edits.env)?;
    for (i, node) in edits.device_nodes.iter().enumerate() {
        let at = format!("{at}.deviceNodes[{i}]");
        if node.path.is_empty() {
            return invalid(format!("{at}.path"), "is empty");
        }
        if let Some(kind) = &node.node_type
            && !["", "b", "c", "u", "p"].contains(&kind.as_str())
        {
            return invalid(format!("{at}.type"), format!("is `{kind}`: expected b, c, u or p"));
        }
        if let Some(permissions) = &node.permissions
            && !permissions.chars().all(|c| "rwm".contains(c))
        {
            return invalid(
                format!("{at}.permissions"),
                format!("is `{permissions}`: expected characters of `rwm`"),
            );
        }
    }
    net_devices(at, edits)?;
    for (i, hook) in edits.hooks.iter().enumerate() {
        let at = format!("{at}.hooks[{i}]");
        if hook.path.is_empty() {
            return invalid(format!("{at}.path"), "is empty");
        }
        env(&format!("{at}.env"), &hook.env)?;
    }
    for (i, mount) in edits.mounts.iter().enumerate() {
        if mount.host_path.is_empty() {
            return invalid(format!("{at}.mounts[{i}].hostPath"), "is empty");
        }
        if mount.container_path.is_empty() {
            return invalid(format!("{at}.mounts[{i}].containerPath"), "is empty");
        }
    }
    edits.intel_rdt.as_ref().map_or(Ok(()), |rdt| intel_rdt(at, rdt))
}

fn env(at: &str, variables: &[String]) -> Result<(), InvalidSpec> {
    for (i, variable) in variables.iter().enumerate() {
        if variable.find('=').is_none_or(|position| position == 0) {
            return invalid(format!("{at}[{i}]"), format!("is `{variable}`: expected `NAME=value`"));
        }
    }
    Ok(())
}

fn net_devices(at: &str, edits: &ContainerEdits) -> Result<(), InvalidSpec> {
    let (mut on_host, mut in_container) = (BTreeSet::new(), BTreeSet::new());
    for (i, device) in edits.net_devices.iter().enumerate() {
        let at = format!("{at}.netDevices[{i}]");
        for (key, name, seen) in [
            ("hostInterfaceName", &device.host_interface_name, &mut on_host),
            ("name", &device.name, &mut in_container),
        ] {
            if name.is_empty() {
                return invalid(format!("{at}.{key}"), "is empty");
            }
            if !seen.insert(name) {
                return invalid(format!("{at}.{key}"), format!("`{name}` is there twice"));
            }
        }
    }
    Ok(())
}

fn intel_rdt(at: &str, rdt: &IntelRdt) -> Result<(), InvalidSpec> {
    let at = format!("{at}.intelRdt.closID");
    match rdt.clos_id.as_deref() {
        None | Some("/") => Ok(()),
        Some(id) if id.len() >= 4096 => invalid(at, "is longer than 4095 bytes"),
        Some("." | "..") => invalid(at, "is not a name"),
        Some(id) if id.contains(['/', '\n']) => invalid(at, "holds a slash or a line break"),
        Some(_) => Ok(()),
    }
}

/// Most bytes that all annotations of one object may have, keys and values together (Kubernetes).
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

fn annotations(at: &str, annotations: &BTreeMap<String, String>) -> Result<(), InvalidSpec> {
    let size: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > ANNOTATIONS_LIMIT {
        return invalid(at, format!("has {size} bytes, more than {ANNOTATIONS_LIMIT}"));
    }
    for key in annotations.keys() {
        let (prefix, name) = key.split_once('/').map_or((None, key.as_str()), |(p, n)| (Some(p), n));
        if !is_label(name, 63, "-_.") || !prefix.is_none_or(is_dns_subdomain) {
            return invalid(format!("{at}.{key}"), "is not a qualified name (`prefix/name`)");
        }
    }
    Ok(())
}

fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253
        && !text.contains(|c: char| c.is_ascii_uppercase())
        && text.split('.').all(|label| is_label(label, 253, "-"))
}

fn is_label(text: &str, limit: usize, inner: &str) -> bool {
    let ends = |c: char| c.is_ascii_alphanumeric();
    text.len() <= limit
        && text.starts_with(ends)
        && text.ends_with(ends)
        && text.chars().all(|c| c.is_ascii_alphanumeric() || inner.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks one spec, written as what follows its kind.
    #[track_caller]
    fn check(rest: &str, expected: &str) {
        let json = format!(r#"{{"cdiVersion": "1.1.0", "kind": "v/c", {rest}}}"#);
        let spec: Spec = serde_json::from_str(&json).unwrap();
        let answer = spec
            .validate()
            .map_or_else(|error| error.to_string(), |()| "valid".to_owned());
        assert_eq!(answer, expected, "{json}");
    }

    const DEVICES: &str = r#""devices": [{"name": "a", "containerEdits": {"env": ["A=b"]}}]"#;

    #[test]
    fn a_broken_rule_is_named_with_its_place() {
        check(DEVICES, "valid");
        check(r#""devices": []"#, "invalid CDI spec: `devices` is empty");
        check(
            r#""devices": [{"name": "a"}]"#,
            "invalid CDI spec: `devices[0].containerEdits` is empty",
        );
        let twice = r#""devices": [{"name": "a", "containerEdits": {"env": ["A=b"]}}, {"name": "a"}]"#;
        check(twice, "invalid CDI spec: `devices[1].name` `a` is there twice");
        for (edits, expected) in [
            (
                r#"{"env": ["=b"]}"#,
                "`containerEdits.env[0]` is `=b`: expected `NAME=value`",
            ),
            (
                r#"{"deviceNodes": [{"path": ""}]}"#,
                "`containerEdits.deviceNodes[0].path` is empty",
            ),
            (
                r#"{"deviceNodes": [{"path": "/a", "type": "x"}]}"#,
                "`containerEdits.deviceNodes[0].type` is `x`: expected b, c, u or p",
            ),
            (
                r#"{"deviceNodes": [{"path": "/a", "permissions": "none"}]}"#,
                "`containerEdits.deviceNodes[0].permissions` is `none`: expected characters of `rwm`",
            ),
            (
                r#"{"hooks": [{"hookName": "createContainer", "path": ""}]}"#,
                "`containerEdits.hooks[0].path` is empty",
            ),
            (
                r#"{"hooks": [{"hookName": "createContainer", "path": "/a", "env": ["a"]}]}"#,
                "`containerEdits.hooks[0].env[0]` is `a`: expected `NAME=value`",
            ),
            (
                r#"{"mounts": [{"hostPath": "/a", "containerPath": ""}]}"#,
                "`containerEdits.mounts[0].containerPath` is empty",
            ),
            (
                r#"{"intelRdt": {"closID": "a/b"}}"#,
                "`containerEdits.intelRdt.closID` holds a slash or a line break",
            ),
            (
                r#"{"netDevices": [{"hostInterfaceName": "a", "name": "b"}, {"hostInterfaceName": "a", "name": "c"}]}"#,
                "`containerEdits.netDevices[1].hostInterfaceName` `a` is there twice",
            ),
        ] {
            check(
                &format!(r#"{DEVICES}, "containerEdits": {edits}"#),
                &format!("invalid CDI spec: {expected}"),
            );
        }
        check(
            &format!(r#"{DEVICES}, "annotations": {{"a b": "c"}}"#),
            "invalid CDI spec: `annotations.a b` is not a qualified name (`prefix/name`)",
        );
        check(
            &format!(r#"{DEVICES}, "annotations": {{"nvidia.com/driver": "c"}}"#),
            "valid",
        );
    }

    #[test]
    fn a_version_older_than_the_content_is_refused() {
        let json =
            r#"{"cdiVersion": "0.3.0", "kind": "v/c", "devices": [{"name": "0", "containerEdits": {"env": ["A=b"]}}]}"#;
        let spec: Spec = serde_json::from_str(json).unwrap();
        assert_eq!(
            spec.validate().unwrap_err().to_string(),
            "invalid CDI spec: `cdiVersion` must be at least 0.5.0 for what the spec uses"
        );
    }
}
