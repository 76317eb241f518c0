use serde::{Deserialize, Serialize};

/// The container that a process runs in, by its control group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Container {
    /// The runtime's identifier: 64 hexadecimal digits.
    pub id: String,
    /// The UID of its pod, where the kubelet made the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
}

impl Container {
    /// From the text of `/proc/<pid>/cgroup`, of either version of control groups and any container runtime.
    ///
    /// Where containers are nested (a Kubernetes node in a container) it is the innermost one. `None` for a process that is
    /// in none.
    ///
    /// ```
    /// let id = "3d".repeat(32);
    /// let text = format!("0::/kubepods.slice/kubepods-pod1f0c_77.slice/cri-containerd-{id}.scope\n");
    /// assert_eq!(gpu_core::Container::from_cgroup(&text).unwrap().id, id);
    /// assert_eq!(gpu_core::Container::from_cgroup("0::/user.slice/session-1.scope\n"), None);
    /// ```
    pub fn from_cgroup(text: &str) -> Option<Self> {
        // Lines are `hierarchy:controllers:path`, and a path may hold colons.
        let mut paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        paths.find_map(Self::from_path)
    }

    fn from_path(path: &str) -> Option<Self> {
        let mut parts = path.split('/').rev();
        let id = parts.find_map(container_id)?.to_owned();
        Some(Self {
            id,
            pod_uid: path.split('/').rev().find_map(pod_uid),
        })
    }
}

/// 64 hexadecimal digits, alone or between a runtime's prefix (`crio-`, `cri-containerd:`) and `.scope`.
fn container_id(part: &str) -> Option<&str> {
    let part = part.strip_suffix(".scope").unwrap_or(part);
    let id = part.rsplit(['-', ':']).next()?;
    let valid = id.len() == 64 && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    valid.then_some(id)
}

/// `pod<uid>`, or `kubepods-<class>-pod<uid>.slice` with underscores for dashes; systemd's names may be followed by
/// `:<prefix>:<id>`.
fn pod_uid(part: &str) -> Option<String> {
    let part = part.split(':').next()?;
    let part = match part.strip_suffix(".slice") {
        Some(slice) if slice.starts_with("kubepods") => slice.rsplit('-').next()?,
        Some(_) => return None,
        None => part,
    };
    let uid = part.strip_prefix("pod")?.replace('_', "-");
    let valid = !uid.is_empty() && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    valid.then_some(uid)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(&str, Option<&str>)>) {
        let found = Container::from_cgroup(text);
        let found = found
            .as_ref()
            .map(|found| (found.id.as_str(), found.pod_uid.as_deref()));
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn containers_of_all_runtimes_are_known_by_their_group() {
        let id = &"0123456789abcdef".repeat(4);
        let uid = Some("1f0c77a2-0000-4000-8000-123456789abc");
        let scope = "1f0c77a2_0000_4000_8000_123456789abc";
        // containerd and CRI-O with systemd, with burstable and guaranteed pods
        check(
            &format!(
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{scope}.slice/cri-containerd-{id}.scope\n"
            ),
            Some((id, uid)),
        );
        check(
            &format!("0::/kubepods.slice/kubepods-pod{scope}.slice/crio-{id}.scope\n"),
            Some((id, uid)),
        );
        check(
            &format!("0::/system.slice/containerd.service/kubepods-besteffort-pod{scope}.slice:cri-containerd:{id}\n"),
            Some((id, uid)),
        );
        // without systemd, version 1, where some controllers have no group
        check(
            &format!(
                "12:pids:/\n11:memory:/kubepods/burstable/pod1f0c77a2-0000-4000-8000-123456789abc/{id}\n1:name=systemd:/\n"
            ),
            Some((id, uid)),
        );
        // Docker and Podman
        check(&format!("0::/system.slice/docker-{id}.scope\n"), Some((id, None)));
        check(&format!("4:devices:/docker/{id}\n"), Some((id, None)));
        check(
            &format!("0::/machine.slice/libpod-{id}.scope/container\n"),
            Some((id, None)),
        );
        // a node in a container
        let node = "f".repeat(64);
        check(
            &format!(
                "0::/docker/{node}/kubelet.slice/kubelet-kubepods.slice/kubepods-pod{scope}.slice/cri-containerd-{id}.scope\n"
            ),
            Some((id, uid)),
        );
    }

    #[test]
    fn a_process_of_the_host_is_in_no_container() {
        check("", None);
        check("0::/\n", None);
        check("0::/user.slice/user-1000.slice/session-3.scope\n", None);
        check("0::/system.slice/podman.service\n", None);
        check(&format!("0::/system.slice/{}\n", "g".repeat(64)), None);
        check("nonsense", None);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "[a-f0-9:/.\\-_podskube\n]{0,300}|.*") {
            if let Some(container) = Container::from_cgroup(&text) {
                prop_assert_eq!(container.id.len(), 64);
            }
        }
    }
}
