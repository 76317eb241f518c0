use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::device_plugin::{ContainerAllocateResponse, DeviceSpec, Mount};

/// A pod by namespace and name.
///
/// ```
/// use gpu_kubelet::double::PodName;
///
/// assert_eq!(PodName::from("training/worker-0").namespace, "training");
/// assert_eq!(PodName::from("worker-0").to_string(), "default/worker-0");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodName {
    /// The namespace.
    pub namespace: String,
    /// The name in it.
    pub name: String,
}

impl From<&str> for PodName {
    /// `namespace/name`, or a name in the namespace `default`.
    fn from(text: &str) -> Self {
        let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl From<&PodName> for PodName {
    fn from(pod: &PodName) -> Self {
        pod.clone()
    }
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What a container got of one resource.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Admission {
    /// The devices, sorted.
    pub device_ids: Vec<String>,
    /// The plugin's answer.
    pub response: ContainerAllocateResponse,
}

/// What the plugins' answers for all resources of a container come to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ContainerOptions {
    /// Environment variables.
    pub envs: BTreeMap<String, String>,
    /// Mounts, each container path once.
    pub mounts: Vec<Mount>,
    /// Device nodes, each container path once.
    pub devices: Vec<DeviceSpec>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// CDI names, each once.
    pub cdi_devices: Vec<String>,
    /// What a later resource wanted otherwise and did not get. The real kubelet logs these and goes on.
    pub conflicts: Vec<String>,
}

impl ContainerOptions {
    /// Adds the answer for another resource: what is already there stays.
    pub(super) fn add(&mut self, response: &ContainerAllocateResponse) {
        for (name, value) in &response.envs {
            let kept = self.envs.entry(name.clone()).or_insert_with(|| value.clone());
            note_conflict(&mut self.conflicts, "environment variable", name, kept, value);
        }
        for (name, value) in &response.annotations {
            let kept = self.annotations.entry(name.clone()).or_insert_with(|| value.clone());
            note_conflict(&mut self.conflicts, "annotation", name, kept, value);
        }
        for mount in &response.mounts {
            match self
                .mounts
                .iter()
                .find(|kept| kept.container_path == mount.container_path)
            {
                Some(kept) => note_conflict(
                    &mut self.conflicts,
                    "mount",
                    &mount.container_path,
                    &kept.host_path,
                    &mount.host_path,
                ),
                None => self.mounts.push(mount.clone()),
            }
        }
        for device in &response.devices {
            match self
                .devices
                .iter()
                .find(|kept| kept.container_path == device.container_path)
            {
                Some(kept) => note_conflict(
                    &mut self.conflicts,
                    "device",
                    &device.container_path,
                    &kept.host_path,
                    &device.host_path,
                ),
                None => self.devices.push(device.clone()),
            }
        }
        let mut known: BTreeSet<_> = self.cdi_devices.iter().cloned().collect();
        let new_names = response.cdi_devices.iter().map(|device| &device.name);
        self.cdi_devices
            .extend(new_names.filter(|name| known.insert((*name).clone())).cloned());
    }
}

fn note_conflict(conflicts: &mut Vec<String>, what: &str, name: &str, kept: &str, wanted: &str) {
    if kept != wanted {
        conflicts.push(format!("{what} `{name}` stays `{kept}` and does not become `{wanted}`"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_plugin::CdiDevice;

    fn answer(devices: &str, source: &str) -> ContainerAllocateResponse {
        ContainerAllocateResponse {
            envs: [("DEVICES".to_owned(), devices.to_owned())].into(),
            mounts: vec![Mount {
                container_path: "/data".into(),
                host_path: source.into(),
                read_only: true,
            }],
            devices: vec![DeviceSpec {
                container_path: "/dev/x".into(),
                host_path: source.into(),
                permissions: "rw".into(),
            }],
            annotations: [("note".to_owned(), devices.to_owned())].into(),
            cdi_devices: vec![
                CdiDevice {
                    name: "a.b/c=all".into(),
                },
                CdiDevice {
                    name: format!("a.b/c={devices}"),
                },
            ],
        }
    }

    #[test]
    fn first_resource_keeps_what_both_set() {
        let mut options = ContainerOptions::default();
        options.add(&answer("one", "/1"));
        options.add(&answer("two", "/2"));

        assert_eq!(options.envs["DEVICES"], "one");
        assert_eq!(options.annotations["note"], "one");
        assert_eq!(
            options.mounts.iter().map(|mount| &mount.host_path).collect::<Vec<_>>(),
            ["/1"]
        );
        assert_eq!(
            options
                .devices
                .iter()
                .map(|device| &device.host_path)
                .collect::<Vec<_>>(),
            ["/1"]
        );
        assert_eq!(options.cdi_devices, ["a.b/c=all", "a.b/c=one", "a.b/c=two"]);
        assert_eq!(options.conflicts.len(), 4, "{:?}", options.conflicts);
    }

    #[test]
    fn equal_settings_do_not_conflict() {
        let mut options = ContainerOptions::default();
        options.add(&answer("one", "/1"));
        options.add(&answer("one", "/1"));

        assert_eq!(options.conflicts, Vec::<String>::new());
        assert_eq!(options.cdi_devices.len(), 2);
    }
}
