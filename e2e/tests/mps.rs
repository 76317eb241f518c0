//! GPUs shared by MPS: the daemon beside the device plugin, and pods as its clients.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use gpu_e2e::{
    Checkpoint, Cluster, GpuNode, images,
    plugin::{self, Configured},
    pods::{self, Pods},
    wait,
};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(1);
const DAEMON: &str = "nvidia-device-plugin-mps-control-daemon";
const PIPE: &str = "/mps/nvidia.com/gpu/pipe";
/// One more than there are GPUs, so that two share one.
const CLIENTS: usize = 5;

const SHARED: &str = "
version: v1
sharing:
  mps:
    resources: [{ name: nvidia.com/gpu, replicas: 4 }]
";

/// A pod that asks for so many replicas and makes a context on what it gets, for as long as it runs.
fn client(name: &str, replicas: usize) -> Value {
    let mut pod = pods::pod(name, "nvidia.com/gpu");
    let container = &mut pod["spec"]["containers"][0];
    container["image"] = json!(images::CUDA);
    container["command"] = json!(["sh", "-c", "sleep 600 | cuda-devices --context"]);
    container["resources"]["limits"]["nvidia.com/gpu"] = json!(replicas);
    pod
}

/// The daemon, which goes when the test does.
struct Daemon<'a>(&'a Cluster);

impl<'a> Daemon<'a> {
    fn start(cluster: &'a Cluster, node: &GpuNode) -> Result<Self> {
        let daemon = Self(cluster);
        cluster.apply_text(&node.mps_manifest()?)?;
        Ok(daemon)
    }

    /// What the daemon says to a command.
    fn ask(&self, command: &str) -> Result<String> {
        let script = format!("echo '{command}' | CUDA_MPS_PIPE_DIRECTORY={PIPE} $GPU_MPS_CONTROL");
        let daemon_set = format!("daemonset/{DAEMON}");
        let output = self
            .0
            .kubectl(["-n", "kube-system", "exec", &daemon_set, "--", "sh", "-c", &script])?;
        Ok(output.stdout.trim().to_owned())
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        // One that stays fails the test that finds its GPUs in exclusive mode.
        let _ = self.0.delete("daemonset", "kube-system", DAEMON, LIMIT);
    }
}

/// The environment of a pod's container.
fn environment(cluster: &Cluster, name: &str) -> Result<BTreeMap<String, String>> {
    let text = cluster.exec("default", name, &["env"])?.stdout;
    let variables = text.lines().filter_map(|line| line.split_once('='));
    Ok(variables
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

#[test]
fn pods_under_mps_have_their_limits_and_wait_for_the_daemon() -> Result<()> {
    let cluster = Cluster::current()?;
    let node = GpuNode::ready(&cluster)?;
    node.load_cuda(&cluster)?;
    let before = plugin::process(&cluster)?;
    let configured = Configured::new(&cluster, SHARED)?;
    // Nothing is handed out before a daemon serves it.
    node.wait_for_allocatable(&cluster, "0")?;
    let daemon = Daemon::start(&cluster, &node)?;
    node.wait_for_allocatable(&cluster, "16")?;

    let mut pods = Pods::new(&cluster);
    let names: Vec<_> = (0..CLIENTS).map(|n| format!("mps-client-{n}")).collect();
    for name in &names {
        pods.apply(&client(name, 1))?;
    }
    let mut on = BTreeMap::<String, usize>::new();
    for name in &names {
        cluster.wait_for_phase("default", name, "Running", LIMIT)?;
        let given = Checkpoint::one_of(&cluster, name)?;
        let (gpu, _) = given.split_once("::").context("the id of a replica")?;
        *on.entry(gpu.to_owned()).or_default() += 1;

        let environment = environment(&cluster, name)?;
        for (variable, value) in [
            ("CUDA_MPS_PIPE_DIRECTORY", PIPE),
            ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25"),
            ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=20480M"),
        ] {
            assert_eq!(
                environment.get(variable).map(String::as_str),
                Some(value),
                "{name}: {variable}"
            );
        }
        // It is let in by the daemon, and sees a quarter of the GPU's 132 multiprocessors.
        let device = wait::until("CUDA answers in the pod", LIMIT, || {
            let log = cluster.logs("default", name)?;
            Ok(log.lines().nth(1).map(str::to_owned))
        })?;
        let uuid = gpu.trim_start_matches("GPU-");
        assert!(
            device.starts_with("0: NVIDIA H100") && device.contains(uuid) && device.ends_with(", 33 SM"),
            "{name}: {device}"
        );
    }
    let mut counts: Vec<_> = on.into_values().collect();
    counts.sort_unstable();
    assert_eq!(
        counts,
        [1, 1, 1, 2],
        "replicas are given on the GPU that has the most left"
    );

    let server = daemon.ask("get_server_list")?;
    let clients = daemon.ask(&format!("get_client_list {server}"))?;
    assert_eq!(clients.lines().count(), CLIENTS, "{clients}");
    assert_eq!(daemon.ask("get_default_active_thread_percentage")?, "25.0");

    // By default a container gets one replica of what is shared by MPS.
    pods.apply(&client("mps-client-of-two", 2))?;
    let refused = cluster.wait_for_phase("default", "mps-client-of-two", "Failed", LIMIT)?;
    let message = refused["status"]["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("maximum request size for shared resources is 1; found 2"),
        "{message}"
    );
    drop(pods);

    drop(daemon);
    node.wait_for_allocatable(&cluster, "0")?;
    drop(configured);
    node.wait_for_allocatable(&cluster, "4")?;
    assert_eq!(plugin::process(&cluster)?, before);
    Ok(())
}
