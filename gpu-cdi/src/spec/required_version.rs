use super::{ContainerEdits, Spec};
use crate::Version;

impl Spec {
    /// The oldest CDI version that has everything this spec uses; 0.3.0 at least.
    ///
    /// The rules are those of the CDI library (`specs-go/version.go` of v1.1.0), so that a spec is readable by the
    /// oldest runtime that can serve it.
    pub fn required_version(&self) -> Version {
        let edits = || std::iter::once(&self.container_edits).chain(self.devices.iter().map(|d| &d.container_edits));
        let any = |test: fn(&ContainerEdits) -> bool| edits().any(test);

        if any(|e| !e.net_devices.is_empty() || e.intel_rdt.as_ref().is_some_and(super::IntelRdt::needs_v1_1)) {
            Version::V1_1_0
        } else if any(|e| e.intel_rdt.is_some() || !e.additional_gids.is_empty()) {
            Version::V0_7_0
        } else if self.has_annotations() || self.kind.class().contains('.') {
            Version::V0_6_0
        } else if any(ContainerEdits::has_host_path) || self.devices.iter().any(|d| d.name.starts_with_digit()) {
            Version::V0_5_0
        } else if any(|e| e.mounts.iter().any(|mount| mount.mount_type.is_some())) {
            Version::V0_4_0
        } else {
            Version::V0_3_0
        }
    }

    fn has_annotations(&self) -> bool {
        !self.annotations.is_empty() || self.devices.iter().any(|device| !device.annotations.is_empty())
    }
}

impl ContainerEdits {
    fn has_host_path(&self) -> bool {
        self.device_nodes.iter().any(|node| node.host_path.is_some())
    }
}

impl super::IntelRdt {
    fn needs_v1_1(&self) -> bool {
        !self.schemata.is_empty() || self.enable_monitoring
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A spec with one device, written as the part of its JSON that matters.
    #[track_caller]
    fn check(device: &str, rest: &str, expected: &str) {
        let json = format!(r#"{{"cdiVersion": "1.1.0", "kind": "v/c", "devices": [{device}] {rest}}}"#);
        let spec: Spec = serde_json::from_str(&json).unwrap();
        assert_eq!(spec.required_version().as_str(), expected, "{json}");
    }

    #[test]
    fn the_required_version_is_that_of_the_newest_feature_used() {
        check(r#"{"name": "a"}"#, "", "0.3.0");
        let mount = r#"{"mounts": [{"hostPath": "/a", "containerPath": "/a", "type": "bind"}]}"#;
        check(r#"{"name": "a"}"#, &format!(r#", "containerEdits": {mount}"#), "0.4.0");
        check(r#"{"name": "0"}"#, "", "0.5.0");
        check(
            r#"{"name": "a", "containerEdits": {"deviceNodes": [{"path": "/a", "hostPath": "/a"}]}}"#,
            "",
            "0.5.0",
        );
        check(r#"{"name": "0", "annotations": {"a": "b"}}"#, "", "0.6.0");
        check(r#"{"name": "0"}"#, r#", "annotations": {"a": "b"}"#, "0.6.0");
        check(
            r#"{"name": "0", "containerEdits": {"additionalGids": [44]}}"#,
            "",
            "0.7.0",
        );
        check(
            r#"{"name": "0", "containerEdits": {"intelRdt": {"closID": "a"}}}"#,
            "",
            "0.7.0",
        );
        check(
            r#"{"name": "0", "containerEdits": {"intelRdt": {"enableMonitoring": true}}}"#,
            "",
            "1.1.0",
        );
        let net = r#"{"netDevices": [{"hostInterfaceName": "a", "name": "b"}]}"#;
        check(r#"{"name": "0"}"#, &format!(r#", "containerEdits": {net}"#), "1.1.0");
    }

    #[test]
    fn a_dot_in_the_class_needs_0_6_0() {
        let json = r#"{"cdiVersion": "1.1.0", "kind": "v/c.d", "devices": [{"name": "a"}]}"#;
        let spec: Spec = serde_json::from_str(json).unwrap();
        assert_eq!(spec.required_version(), Version::V0_6_0);
    }
}
