//! Pods of the tests, which go when their test does.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::{Cluster, images::STACK};

/// How long a pod gets to go.
const LIMIT: Duration = Duration::from_mins(1);

/// A pod that asks for one of a resource and stays.
pub fn pod(name: &str, resource: &str) -> Value {
    let container = json!({
        "name": "main",
        "image": STACK,
        "imagePullPolicy": "Never",
        "command": ["sleep", "600"],
        "resources": { "limits": { resource: 1 } },
    });
    of_container(name, &container)
}

/// A pod of one container, which runs once and ends at once when it is deleted.
pub fn of_container(name: &str, container: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    })
}

/// Deletes its pods also where a test fails, so that the next has all GPUs.
#[derive(Debug)]
pub struct Pods<'a> {
    cluster: &'a Cluster,
    names: Vec<String>,
}

impl<'a> Pods<'a> {
    /// None yet.
    pub fn new(cluster: &'a Cluster) -> Self {
        Self {
            cluster,
            names: Vec::new(),
        }
    }

    /// Makes a pod.
    ///
    /// # Errors
    /// See [`Cluster::kubectl`].
    ///
    /// # Panics
    /// If it has no name.
    pub fn apply(&mut self, pod: &Value) -> Result<()> {
        let name = pod["metadata"]["name"].as_str().expect("a test's pod has a name");
        self.names.push(name.to_owned());
        self.cluster.apply(pod).map(drop)
    }
}

impl Drop for Pods<'_> {
    fn drop(&mut self) {
        for name in &self.names {
            // A pod that stays fails the test that finds no GPU for its own.
            let _ = self.cluster.delete("pod", "default", name, LIMIT);
        }
    }
}

/// The UUIDs in what `nvidia-smi -L` prints: `GPU 0: NAME (UUID: GPU-…)`.
pub fn uuids(listing: &str) -> Vec<String> {
    let uuid = |line: &str| Some(line.split_once("UUID: ")?.1.trim_end_matches(')').to_owned());
    listing.lines().filter_map(uuid).collect()
}
