//! From the driver to the pod: the device plugin as a DaemonSet on a node with four simulated GPUs.

use std::{collections::BTreeSet, fs, time::Duration};

use anyhow::{Context, Result};
use gpu_e2e::{
    Checkpoint, Cluster, GpuNode,
    plugin::{self, Configured},
    pods::{self, Pods, uuids},
    wait,
};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(1);

/// A pod that asks for one GPU and stays.
fn gpu_pod(name: &str) -> Value {
    pods::pod(name, "nvidia.com/gpu")
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
        let mut pod = gpu_pod(&format!("one-of-four-{n}"));
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
        let given = Checkpoint::one_of(&cluster, &name)?;
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
    pods.apply(&gpu_pod(fifth))?;
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
    let before = plugin::process(&cluster)?;
    cluster.restart("kubelet")?;
    cluster.wait_for_ready_node(LIMIT)?;
    node.wait_for_allocatable(&cluster, "4")?;
    assert_eq!(plugin::process(&cluster)?, before);

    // Not the status from before the restart: a pod is really given a GPU.
    let mut pods = Pods::new(&cluster);
    pods.apply(&gpu_pod("after-restart"))?;
    cluster.wait_for_phase("default", "after-restart", "Running", LIMIT)?;
    let listing = cluster.exec("default", "after-restart", &["nvidia-smi", "-L"])?.stdout;
    assert_eq!(uuids(&listing), [Checkpoint::one_of(&cluster, "after-restart")?]);
    Ok(())
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
    let before = plugin::process(&cluster)?;
    let volume = plugin::config_volume(&cluster)?;
    let old = fs::read_link(volume.join("..data"))?;
    // The log may tell of earlier ones.
    let taken_over = || -> Result<usize> {
        let log = plugin::log(&cluster)?;
        Ok(log.matches("the new configuration is in force").count())
    };
    let earlier = taken_over()?;
    let configured = Configured::new(&cluster, &SHARED.replace("RENAME", "false"))?;
    let swapped = || Ok((fs::read_link(volume.join("..data"))? != old).then_some(()));
    wait::until("the kubelet has replaced the configuration file", LIMIT, swapped)?;
    wait::until("the plugin has taken it over", Duration::from_secs(5), || {
        Ok((taken_over()? > earlier).then_some(()))
    })?;
    node.wait_for_allocatable(&cluster, "16")?;
    assert_eq!(plugin::process(&cluster)?, before);

    let mut pods = Pods::new(&cluster);
    let names: Vec<_> = (0..16).map(|n| format!("one-of-sixteen-{n}")).collect();
    for name in &names {
        pods.apply(&gpu_pod(name))?;
    }
    let mut on = std::collections::BTreeMap::<String, usize>::new();
    for name in &names {
        cluster.wait_for_phase("default", name, "Running", LIMIT)?;
        let given = Checkpoint::one_of(&cluster, name)?;
        let (gpu, _) = given.split_once("::").context("the id of a replica")?;
        *on.entry(gpu.to_owned()).or_default() += 1;
    }
    assert_eq!(on.into_values().collect::<Vec<_>>(), [4; 4]);
    drop(pods);

    configured.set(&SHARED.replace("RENAME", "true"))?;
    node.wait_for_allocatable_of(&cluster, "nvidia.com/gpu.shared", "16")?;
    node.wait_for_allocatable(&cluster, "0")?;
    let mut pods = Pods::new(&cluster);
    pods.apply(&pods::pod("on-shared", "nvidia.com/gpu.shared"))?;
    cluster.wait_for_phase("default", "on-shared", "Running", LIMIT)?;
    let given = Checkpoint::one_of(&cluster, "on-shared")?;
    let listing = cluster.exec("default", "on-shared", &["nvidia-smi", "-L"])?.stdout;
    assert_eq!(
        given.split_once("::").map(|(gpu, _)| vec![gpu.to_owned()]),
        Some(uuids(&listing))
    );
    drop(pods);
    drop(configured);
    node.wait_for_allocatable(&cluster, "4")?;
    assert_eq!(plugin::process(&cluster)?, before);
    Ok(())
}

#[test]
fn mig_devices_come_and_go_while_a_pod_runs_on_another_gpu() -> Result<()> {
    let cluster = Cluster::current()?;
    let node = GpuNode::ready(&cluster)?;
    let before = plugin::process(&cluster)?;
    let configured = Configured::new(&cluster, "flags: { migStrategy: mixed }")?;
    let mut pods = Pods::new(&cluster);
    let (elsewhere, small) = ("beside-mig", "mig-small");
    pods.apply(&gpu_pod(elsewhere))?;
    cluster.wait_for_phase("default", elsewhere, "Running", LIMIT)?;
    let held = Checkpoint::one_of(&cluster, elsewhere)?;
    let divided = node.other_than(&held)?;
    let gpu = divided.to_string();

    node.sim(&["mig", "on", "--gpu", &gpu])?;
    for profile in ["3g.40gb", "1g.10gb", "1g.10gb"] {
        node.sim(&["mig", "create", profile, "--gpu", &gpu])?;
    }
    node.wait_for_allocatable_of(&cluster, "nvidia.com/mig-1g.10gb", "2")?;
    node.wait_for_allocatable_of(&cluster, "nvidia.com/mig-3g.40gb", "1")?;
    node.wait_for_allocatable(&cluster, "3")?;
    pods.apply(&pods::pod(small, "nvidia.com/mig-1g.10gb"))?;
    cluster.wait_for_phase("default", small, "Running", LIMIT)?;
    let listing = cluster.exec("default", small, &["nvidia-smi", "-L"])?.stdout;
    let mig = Checkpoint::one_of(&cluster, small)?;
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
    assert_eq!(Checkpoint::one_of(&cluster, elsewhere)?, held);
    assert_eq!(plugin::process(&cluster)?, before);
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
    pods.apply(&gpu_pod("mig-as-gpu"))?;
    cluster.wait_for_phase("default", "mig-as-gpu", "Running", LIMIT)?;
    let given = Checkpoint::one_of(&cluster, "mig-as-gpu")?;
    let listing = cluster.exec("default", "mig-as-gpu", &["nvidia-smi", "-L"])?.stdout;
    assert!(
        given.starts_with("MIG-") && listing.contains(&given),
        "{given}: {listing}"
    );

    // The instances of another GPU go and come while it runs. In between the node is not all alike, and what is left stays.
    let held = uuids(&listing);
    let divided = node.other_than(held.first().context("nvidia-smi lists the GPU")?)?;
    for instance in node.instances(divided)? {
        node.sim(&["mig", "destroy", &instance, "--gpu", &divided.to_string()])?;
    }
    node.wait_for_allocatable(&cluster, "6")?;
    for _ in 0..2 {
        node.sim(&["mig", "create", "3g.40gb", "--gpu", &divided.to_string()])?;
    }
    node.wait_for_allocatable(&cluster, "8")?;
    cluster.wait_for_phase("default", "mig-as-gpu", "Running", LIMIT)?;
    assert_eq!(Checkpoint::one_of(&cluster, "mig-as-gpu")?, given);
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
    let before = plugin::process(&cluster)?;
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
        pods.apply(&gpu_pod(&format!("beside-lost-{n}")))?;
    }
    for n in 0..3 {
        cluster.wait_for_phase("default", &format!("beside-lost-{n}"), "Running", LIMIT)?;
    }
    // Longer than it would have to be sound.
    std::thread::sleep(Duration::from_secs(10));
    node.wait_for_allocatable(&cluster, "3")?;
    node.sim(&["restore", "--gpu", "2"])?;
    node.wait_for_allocatable(&cluster, "4")?;
    assert_eq!(plugin::process(&cluster)?, before);
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
        pods.apply(&gpu_pod(&format!("within-quota-{n}")))?;
    }
    let third = pods.apply(&gpu_pod("beyond-quota"));
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
