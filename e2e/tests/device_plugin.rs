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
    pod_of(name, "nvidia.com/gpu")
}

/// The same with one of another resource.
fn pod_of(name: &str, resource: &str) -> Value {
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
                "resources": { "limits": { resource: 1 } },
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

/// The plugin's configuration file, set anew at the end.
struct Configured<'a>(&'a Cluster);

impl<'a> Configured<'a> {
    fn new(cluster: &'a Cluster, text: &str) -> Result<Self> {
        let configured = Self(cluster);
        configured.set(text)?;
        Ok(configured)
    }

    fn set(&self, text: &str) -> Result<()> {
        let config = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "nvidia-device-plugin-config", "namespace": "kube-system" },
            "data": { "config.yaml": text },
        });
        self.0.apply(&config)?;
        // The kubelet brings a pod's volumes up to date when it looks at the pod: at the latest a minute later, or now.
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)?
            .as_millis();
        let annotation = format!("e2e/looked-at={now}");
        let selector = "name=nvidia-device-plugin-ds";
        self.0.kubectl([
            "-n",
            "kube-system",
            "annotate",
            "--overwrite",
            "pods",
            "-l",
            selector,
            &annotation,
        ])?;
        Ok(())
    }
}

impl Drop for Configured<'_> {
    fn drop(&mut self) {
        // A node that is left otherwise fails the test that finds other resources than it expects.
        let _ = self.set("version: v1");
    }
}

const SHARED: &str = "
version: v1
sharing:
  timeSlicing:
    renameByDefault: RENAME
    resources: [{ name: nvidia.com/gpu, replicas: 4 }]
";

#[test]
fn four_gpus_shared_by_four_run_sixteen_pods_after_an_edit_of_the_config_map() -> Result<()> {
    let cluster = Cluster::current()?;
    let node = GpuNode::ready(&cluster)?;
    let before = plugin_process(&cluster)?;
    let volume = config_volume(&cluster)?;
    let old = fs::read_link(volume.join("..data"))?;
    let configured = Configured::new(&cluster, &SHARED.replace("RENAME", "false"))?;
    let swapped = || Ok((fs::read_link(volume.join("..data"))? != old).then_some(()));
    wait::until("the kubelet has replaced the configuration file", LIMIT, swapped)?;
    wait::until("the plugin has taken it over", Duration::from_secs(5), || {
        let log = cluster
            .kubectl(["-n", "kube-system", "logs", "daemonset/nvidia-device-plugin-daemonset"])?
            .stdout;
        Ok(log.contains("the new configuration is in force").then_some(()))
    })?;
    node.wait_for_allocatable(&cluster, "16")?;
    assert_eq!(plugin_process(&cluster)?, before);

    let mut pods = Pods::new(&cluster);
    let names: Vec<_> = (0..16).map(|n| format!("one-of-sixteen-{n}")).collect();
    for name in &names {
        pods.apply(&pod(name))?;
    }
    let mut on = std::collections::BTreeMap::<String, usize>::new();
    for name in &names {
        cluster.wait_for_phase("default", name, "Running", LIMIT)?;
        let given = checkpointed(&cluster, name)?;
        let (gpu, _) = given.split_once("::").context("the id of a replica")?;
        *on.entry(gpu.to_owned()).or_default() += 1;
    }
    assert_eq!(on.into_values().collect::<Vec<_>>(), [4; 4]);
    drop(pods);

    configured.set(&SHARED.replace("RENAME", "true"))?;
    node.wait_for_allocatable_of(&cluster, "nvidia.com/gpu.shared", "16")?;
    node.wait_for_allocatable(&cluster, "0")?;
    drop(configured);
    node.wait_for_allocatable(&cluster, "4")?;
    assert_eq!(plugin_process(&cluster)?, before);
    Ok(())
}

/// Where the kubelet has the plugin's configuration file.
fn config_volume(cluster: &Cluster) -> Result<std::path::PathBuf> {
    let pods = cluster.json(["get", "pods", "-n", "kube-system", "-l", "name=nvidia-device-plugin-ds"])?;
    let uid = pods["items"][0]["metadata"]["uid"].as_str().context("no plugin pod")?;
    let folder = format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~configmap/config");
    Ok(folder.into())
}

#[test]
fn mig_devices_come_and_go_while_a_pod_runs_on_another_gpu() -> Result<()> {
    let cluster = Cluster::current()?;
    let node = GpuNode::ready(&cluster)?;
    let before = plugin_process(&cluster)?;
    let configured = Configured::new(&cluster, "flags: { migStrategy: mixed }")?;
    let mut pods = Pods::new(&cluster);
    let (elsewhere, small) = ("beside-mig", "mig-small");
    pods.apply(&pod(elsewhere))?;
    cluster.wait_for_phase("default", elsewhere, "Running", LIMIT)?;
    let held = checkpointed(&cluster, elsewhere)?;
    let divided = node.other_than(&held)?;
    let gpu = divided.to_string();

    node.sim(&["mig", "on", "--gpu", &gpu])?;
    for profile in ["3g.40gb", "1g.10gb", "1g.10gb"] {
        node.sim(&["mig", "create", profile, "--gpu", &gpu])?;
    }
    node.wait_for_allocatable_of(&cluster, "nvidia.com/mig-1g.10gb", "2")?;
    node.wait_for_allocatable_of(&cluster, "nvidia.com/mig-3g.40gb", "1")?;
    node.wait_for_allocatable(&cluster, "3")?;
    pods.apply(&pod_of(small, "nvidia.com/mig-1g.10gb"))?;
    cluster.wait_for_phase("default", small, "Running", LIMIT)?;
    let listing = cluster.exec("default", small, &["nvidia-smi", "-L"])?.stdout;
    let mig = checkpointed(&cluster, small)?;
    assert!(mig.starts_with("MIG-") && listing.contains(&mig), "{mig}: {listing}");
    cluster.delete("pod", "default", small, LIMIT)?;

    for instance in node.instances(divided)? {
        node.sim(&["mig", "destroy", &instance, "--gpu", &gpu])?;
    }
    node.sim(&["mig", "create", "7g.80gb", "--gpu", &gpu])?;
    node.wait_for_allocatable_of(&cluster, "nvidia.com/mig-7g.80gb", "1")?;
    node.wait_for_allocatable_of(&cluster, "nvidia.com/mig-1g.10gb", "0")?;

    for instance in node.instances(divided)? {
        node.sim(&["mig", "destroy", &instance, "--gpu", &gpu])?;
    }
    node.sim(&["mig", "off", "--gpu", &gpu])?;
    node.wait_for_allocatable(&cluster, "4")?;
    cluster.wait_for_phase("default", elsewhere, "Running", LIMIT)?;
    assert_eq!(checkpointed(&cluster, elsewhere)?, held);
    assert_eq!(plugin_process(&cluster)?, before);
    drop(configured);
    Ok(())
}

#[test]
fn mig_devices_of_one_size_are_offered_as_gpus() -> Result<()> {
    let cluster = Cluster::current()?;
    let node = GpuNode::ready(&cluster)?;
    let configured = Configured::new(&cluster, "flags: { migStrategy: single }")?;
    for gpu in ["0", "1", "2", "3"] {
        node.sim(&["mig", "on", "--gpu", gpu])?;
        node.sim(&["mig", "create", "3g.40gb", "--gpu", gpu])?;
        node.sim(&["mig", "create", "3g.40gb", "--gpu", gpu])?;
    }
    node.wait_for_allocatable(&cluster, "8")?;
    let mut pods = Pods::new(&cluster);
    pods.apply(&pod("mig-as-gpu"))?;
    cluster.wait_for_phase("default", "mig-as-gpu", "Running", LIMIT)?;
    let given = checkpointed(&cluster, "mig-as-gpu")?;
    let listing = cluster.exec("default", "mig-as-gpu", &["nvidia-smi", "-L"])?.stdout;
    assert!(
        given.starts_with("MIG-") && listing.contains(&given),
        "{given}: {listing}"
    );
    drop(pods);
    for gpu in 0..4 {
        for instance in node.instances(gpu)? {
            node.sim(&["mig", "destroy", &instance, "--gpu", &gpu.to_string()])?;
        }
        node.sim(&["mig", "off", "--gpu", &gpu.to_string()])?;
    }
    drop(configured);
    node.wait_for_allocatable(&cluster, "4")
}

#[test]
fn a_gpu_with_an_xid_comes_back_and_one_that_is_lost_does_not_before_it_is_found() -> Result<()> {
    let cluster = Cluster::current()?;
    let node = GpuNode::ready(&cluster)?;
    let before = plugin_process(&cluster)?;
    node.sim(&["xid", "--gpu", "2", "95"])?;
    node.wait_for_allocatable(&cluster, "3")?;
    let capacity = cluster.json(["get", "node", cluster.node()])?["status"]["capacity"]["nvidia.com/gpu"].clone();
    assert_eq!(capacity, "4");
    node.wait_for_allocatable(&cluster, "4")?;

    node.sim(&["xid", "--gpu", "2", "79"])?;
    node.sim(&["lose", "--gpu", "2"])?;
    node.wait_for_allocatable(&cluster, "3")?;
    // Pods are admitted to the others meanwhile.
    let mut pods = Pods::new(&cluster);
    for n in 0..3 {
        pods.apply(&pod(&format!("beside-lost-{n}")))?;
    }
    for n in 0..3 {
        cluster.wait_for_phase("default", &format!("beside-lost-{n}"), "Running", LIMIT)?;
    }
    // Longer than it would have to be sound.
    std::thread::sleep(Duration::from_secs(10));
    node.wait_for_allocatable(&cluster, "3")?;
    node.sim(&["restore", "--gpu", "2"])?;
    node.wait_for_allocatable(&cluster, "4")?;
    assert_eq!(plugin_process(&cluster)?, before);
    Ok(())
}

#[test]
fn a_resource_quota_counts_gpus() -> Result<()> {
    let cluster = Cluster::current()?;
    GpuNode::ready(&cluster)?;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": { "name": "two-gpus" },
        "spec": { "hard": { "requests.nvidia.com/gpu": "2" } },
    });
    cluster.apply(&quota)?;
    let mut pods = Pods::new(&cluster);
    wait::until("the quota is in force", LIMIT, || {
        let quota = cluster.json(["get", "resourcequota", "two-gpus"])?;
        Ok((quota["status"]["hard"]["requests.nvidia.com/gpu"] == "2").then_some(()))
    })?;
    for n in 0..2 {
        pods.apply(&pod(&format!("within-quota-{n}")))?;
    }
    let third = pods.apply(&pod("beyond-quota"));
    let (deleted, complaint) = (
        cluster.delete("resourcequota", "default", "two-gpus", LIMIT),
        format!("{:#}", third.err().context("a third GPU is beyond the quota")?),
    );
    deleted?;
    assert!(
        complaint.contains("exceeded quota") && complaint.contains("requests.nvidia.com/gpu"),
        "{complaint}"
    );
    Ok(())
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
