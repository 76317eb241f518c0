//! From the driver to the pod: the device plugin as a DaemonSet on a node with four simulated GPUs.

use std::{collections::BTreeSet, fs, time::Duration};

use anyhow::{Context, Result, ensure};
use gpu_e2e::{Cluster, GpuNode, wait};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(1);
const IMAGE: &str = "localhost/gpu-e2e/gpu-stack:test";
const CHECKPOINT: &str = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";

/// A pod that asks for one GPU and stays.
fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["sleep", "600"],
                "resources": { "limits": { "nvidia.com/gpu": 1 } },
            }],
        },
    })
}

/// Deletes pods also where a test fails, so that the next has all GPUs.
struct Pods<'a> {
    cluster: &'a Cluster,
    names: Vec<String>,
}

impl<'a> Pods<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        Self {
            cluster,
            names: Vec::new(),
        }
    }

    fn apply(&mut self, pod: &Value) -> Result<()> {
        self.names.push(
            pod["metadata"]["name"]
                .as_str()
                .expect("a test's pod has a name")
                .to_owned(),
        );
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

/// The GPU that the kubelet's checkpoint says a pod holds.
fn checkpointed(cluster: &Cluster, name: &str) -> Result<String> {
    let uid = cluster.json(["get", "pod", name])?["metadata"]["uid"].clone();
    let checkpoint: Value = serde_json::from_str(&fs::read_to_string(CHECKPOINT)?)?;
    let entries = checkpoint["Data"]["PodDeviceEntries"]
        .as_array()
        .context("the checkpoint has no entries")?;
    let entry = entries
        .iter()
        .find(|entry| entry["PodUID"] == uid)
        .context("the pod is not in the checkpoint")?;
    let ids: Vec<&str> = entry["DeviceIDs"]
        .as_object()
        .into_iter()
        .flat_map(|nodes| nodes.values())
        .flat_map(|ids| ids.as_array().into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    ensure!(ids.len() == 1, "the pod `{name}` holds {ids:?}");
    Ok(ids[0].to_owned())
}

/// `GPU 0: NAME (UUID: GPU-…)` as `nvidia-smi -L` prints it.
fn uuids(listing: &str) -> Vec<String> {
    let uuid = |line: &str| Some(line.split_once("UUID: ")?.1.trim_end_matches(')').to_owned());
    listing.lines().filter_map(uuid).collect()
}

#[test]
fn the_smoke_test_prints_the_table_of_one_gpu() -> Result<()> {
    let cluster = Cluster::current()?;
    GpuNode::ready(&cluster)?;
    cluster.apply_text(include_str!("../manifests/gpu-smoke-test.yaml"))?;
    cluster.wait_for_phase("default", "gpu-smoke-test", "Succeeded", LIMIT)?;
    let log = cluster.logs("default", "gpu-smoke-test")?;
    cluster.delete("pod", "default", "gpu-smoke-test", LIMIT)?;
    assert!(
        log.contains("Driver Version: 550.163.01") && log.contains("CUDA Version: 12.4"),
        "{log}"
    );
    assert_eq!(log.matches("NVIDIA H100 80GB HBM3").count(), 1, "{log}");
    assert!(
        log.contains("0MiB /  81920MiB") || log.contains("0MiB / 81920MiB"),
        "{log}"
    );
    Ok(())
}

#[test]
fn each_pod_sees_the_one_gpu_that_the_kubelet_gave_it() -> Result<()> {
    let cluster = Cluster::current()?;
    let node = GpuNode::ready(&cluster)?;
    let mut pods = Pods::new(&cluster);
    for n in 0..4 {
        let mut pod = pod(&format!("one-of-four-{n}"));
        if n == 3 {
            // Asking by environment variable must not give more than the kubelet did.
            pod["spec"]["containers"][0]["env"] = json!([{ "name": "NVIDIA_VISIBLE_DEVICES", "value": "all" }]);
        }
        pods.apply(&pod)?;
    }
    let mut seen = BTreeSet::new();
    for n in 0..4 {
        let name = format!("one-of-four-{n}");
        cluster.wait_for_phase("default", &name, "Running", LIMIT)?;
        let listing = cluster.exec("default", &name, &["nvidia-smi", "-L"])?.stdout;
        let given = checkpointed(&cluster, &name)?;
        assert_eq!(uuids(&listing), [given.as_str()], "{name}: {listing}");

        // The device node is that of the GPU on the node, and the only one of a GPU.
        let on_node = node.device_of(&given)?;
        let script = "for node in /dev/nvidia[0-9]*; do stat -c '%n %t:%T' $node; done";
        let stat = cluster.exec("default", &name, &["sh", "-c", script])?.stdout;
        assert_eq!(stat.trim(), on_node, "{name}");
        assert!(seen.insert(given.clone()), "{given} was given twice");
    }
    assert_eq!(seen.len(), 4);

    let fifth = "one-too-many";
    pods.apply(&pod(fifth))?;
    let pending = wait::until("the scheduler says that there is no GPU left", LIMIT, || {
        let pod = cluster.json(["get", "pod", fifth])?;
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let message = conditions
            .iter()
            .filter_map(|condition| condition["message"].as_str())
            .collect::<String>();
        Ok(message
            .contains("Insufficient nvidia.com/gpu")
            .then(|| pod["status"]["phase"].clone()))
    })?;
    assert_eq!(pending, "Pending");
    Ok(())
}

#[test]
fn a_kubelet_restart_leaves_the_plugin_running_and_the_resource_back() -> Result<()> {
    let cluster = Cluster::current()?;
    let node = GpuNode::ready(&cluster)?;
    let before = plugin_process(&cluster)?;
    cluster.restart("kubelet")?;
    cluster.wait_for_ready_node(LIMIT)?;
    node.wait_for_allocatable(&cluster, "4")?;
    assert_eq!(plugin_process(&cluster)?, before);

    // Not the status from before the restart: a pod is really given a GPU.
    let mut pods = Pods::new(&cluster);
    pods.apply(&pod("after-restart"))?;
    cluster.wait_for_phase("default", "after-restart", "Running", LIMIT)?;
    let listing = cluster.exec("default", "after-restart", &["nvidia-smi", "-L"])?.stdout;
    assert_eq!(uuids(&listing), [checkpointed(&cluster, "after-restart")?]);
    Ok(())
}

#[test]
fn an_xid_takes_one_gpu_out_of_the_nodes_status() -> Result<()> {
    let cluster = Cluster::current()?;
    let node = GpuNode::ready(&cluster)?;
    node.sim(&["xid", "--gpu", "2", "79"])?;
    node.wait_for_allocatable(&cluster, "3")?;
    let capacity = cluster.json(["get", "node", cluster.node()])?["status"]["capacity"]["nvidia.com/gpu"].clone();
    assert_eq!(capacity, "4");
    // A new plugin reads the GPUs anew; the last test leaves the node as it found it.
    cluster.kubectl([
        "-n",
        "kube-system",
        "rollout",
        "restart",
        "daemonset/nvidia-device-plugin-daemonset",
    ])?;
    node.wait_for_allocatable(&cluster, "4")
}

/// Pid and start time of the one plugin on the node.
fn plugin_process(cluster: &Cluster) -> Result<(String, String)> {
    let selector = "name=nvidia-device-plugin-ds";
    let pods = cluster.json(["get", "pods", "-n", "kube-system", "-l", selector])?;
    let status = &pods["items"][0]["status"]["containerStatuses"][0];
    ensure!(
        pods["items"].as_array().is_some_and(|pods| pods.len() == 1),
        "not one plugin pod: {pods}"
    );
    ensure!(status["restartCount"] == 0, "the plugin was restarted: {status}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot list /proc")? {
        let pid = entry?.file_name().to_string_lossy().into_owned();
        let Ok(command) = fs::read(format!("/proc/{pid}/cmdline")) else {
            continue;
        };
        if command.starts_with(b"nvidia-device-plugin\0") {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
            let after_name = stat.rsplit_once(") ").context("a strange /proc/<pid>/stat")?.1;
            let start = after_name.split(' ').nth(19).context("a short /proc/<pid>/stat")?;
            found.push((pid, start.to_owned()));
        }
    }
    ensure!(found.len() == 1, "not one plugin process: {found:?}");
    Ok(found.remove(0))
}
