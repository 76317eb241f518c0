//! Who holds which devices, as the kubelet writes it down.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::Cluster;

const PATH: &str = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";

/// The kubelet's checkpoint of its device manager: the devices of each pod, by the pod's UID.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checkpoint(BTreeMap<String, Vec<String>>);

impl Checkpoint {
    /// Reads the checkpoint; the kubelet replaces it by renaming, so that it is always whole.
    ///
    /// # Errors
    /// If it cannot be read, or is not as the kubelet writes it.
    pub fn read() -> Result<Self> {
        let text = fs::read_to_string(PATH).with_context(|| format!("cannot read `{PATH}`"))?;
        Self::parse(&text).with_context(|| format!("cannot use `{PATH}`"))
    }

    fn parse(text: &str) -> Result<Self> {
        let checkpoint: Value = serde_json::from_str(text)?;
        let mut pods = BTreeMap::<_, Vec<_>>::new();
        // `null` where nobody holds any.
        for entry in checkpoint["Data"]["PodDeviceEntries"].as_array().into_iter().flatten() {
            let pod = entry["PodUID"].as_str().context("an entry without a pod")?;
            let by_numa_node = entry["DeviceIDs"].as_object().context("an entry without devices")?;
            let ids = by_numa_node
                .values()
                .flat_map(|ids| ids.as_array().into_iter().flatten())
                .filter_map(Value::as_str)
                .map(str::to_owned);
            pods.entry(pod.to_owned()).or_default().extend(ids);
        }
        Ok(Self(pods))
    }

    /// The devices of the pod with this UID, sorted; none where it holds none.
    pub fn of(&self, uid: &str) -> Vec<String> {
        let mut ids = self.0.get(uid).cloned().unwrap_or_default();
        ids.sort();
        ids
    }

    /// The devices that are given away more than once.
    pub fn given_twice(&self) -> Vec<String> {
        let mut count = BTreeMap::<&String, usize>::new();
        for id in self.0.values().flatten() {
            *count.entry(id).or_default() += 1;
        }
        let twice = count.into_iter().filter(|(_, count)| *count > 1);
        twice.map(|(id, _)| id.clone()).collect()
    }

    /// The one device that a pod of the namespace `default` holds.
    ///
    /// # Errors
    /// If there is no such pod, or it holds none or several.
    pub fn one_of(cluster: &Cluster, name: &str) -> Result<String> {
        let pod = cluster.json(["get", "pod", name])?;
        let uid = pod["metadata"]["uid"].as_str().context("a pod without a UID")?;
        let mut ids = Self::read()?.of(uid);
        ensure!(ids.len() == 1, "the pod `{name}` holds {ids:?}");
        Ok(ids.remove(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_counted_by_pod_whatever_their_numa_node() {
        let text = r#"{ "Data": { "PodDeviceEntries": [
            { "PodUID": "a", "DeviceIDs": { "1": ["g-2"], "0": ["g-1"] } },
            { "PodUID": "b", "DeviceIDs": { "-1": ["g-3"] } },
            { "PodUID": "b", "DeviceIDs": { "0": ["g-1"] } }
        ] }, "Checksum": 1 }"#;
        let checkpoint = Checkpoint::parse(text).unwrap();
        assert_eq!(checkpoint.of("a"), ["g-1", "g-2"]);
        assert_eq!(checkpoint.of("c"), [""; 0]);
        assert_eq!(checkpoint.given_twice(), ["g-1"]);
        let empty = r#"{ "Data": { "PodDeviceEntries": null, "RegisteredDevices": {} }, "Checksum": 1 }"#;
        assert_eq!(Checkpoint::parse(empty).unwrap(), Checkpoint::default());
    }
}
