//! The MIG manager on a simulated node of two H100, by the labels of a real API server.

#![expect(clippy::print_stderr, reason = "the figure is for whoever runs it")]

use std::{
    env, fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use gpu_e2e::{Cluster, GpuNode, wait};
use serde_json::Value;

const LIMIT: Duration = Duration::from_mins(1);
/// The node that is divided: not the device plugin's, which other tests count on.
const FOLDER: &str = "/var/lib/gpu-e2e/divided";
const CLIENT: &str = "nvidia.com/gpu.deploy.client";

fn program(name: &str) -> Result<Command> {
    let stack = env::var("GPU_E2E_STACK").context("GPU_E2E_STACK is not set: start the tests with `e2e/run`")?;
    Ok(Command::new(Path::new(&stack).join(name)))
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {complaint}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn sim(arguments: &[&str]) -> Result<String> {
    output(program("gpu-sim")?.args(arguments).args(["--dir", FOLDER]))
}

/// The MIG devices of both GPUs, by GPU and start.
fn devices() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for gpu in ["0", "1"] {
        let text = sim(&["mig", "list", "--gpu", gpu])?;
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix("ci "));
        found.extend(lines.map(|line| format!("GPU {gpu} {line}")));
    }
    Ok(found)
}

/// The manager on the cluster, until the end of a test.
struct Manager<'a> {
    cluster: &'a Cluster,
    name: &'static str,
}

impl<'a> Manager<'a> {
    fn start(cluster: &'a Cluster, name: &'static str, evict: bool, grace: u32) -> Result<Self> {
        GpuNode::ready(cluster)?; // has the image
        if Path::new(FOLDER).exists() {
            fs::remove_dir_all(FOLDER)?;
        }
        sim(&["new", "--profile", "h100", "--gpus", "2", "--seed", "5"])?;
        let manager = Self { cluster, name };
        manager.label(&[&format!("{CLIENT}=true")])?;
        let manifest = include_str!("../manifests/mig-manager.yaml")
            .replace("MANAGER", name)
            .replace("WHETHER_TO_EVICT", &evict.to_string())
            .replace("GRACE", &grace.to_string())
            .replace("path: DRIVER_ROOT", &format!("path: {FOLDER}/root"))
            .replace("SIMULATION", FOLDER);
        cluster.apply_text(&manifest)?;
        for set in [name.to_owned(), format!("{name}-client")] {
            let set = format!("daemonset/{set}");
            cluster.kubectl(["rollout", "status", "-n", "kube-system", "--timeout=60s", &set])?;
        }
        Ok(manager)
    }

    fn label(&self, labels: &[&str]) -> Result<()> {
        let arguments = ["label", "node", self.cluster.node(), "--overwrite"];
        self.cluster.kubectl(arguments.iter().chain(labels)).map(drop)
    }

    fn node(&self) -> Result<Value> {
        Ok(self.cluster.json(["get", "node", self.cluster.node()])?["metadata"].clone())
    }

    fn ask(&self, config: &str) -> Result<()> {
        self.label(&[&format!("nvidia.com/mig.config={config}")])
    }

    /// Waits until the node says what became of a value, and nobody waits.
    fn ends(&self, state: &str, config: &str) -> Result<Value> {
        wait::until(&format!("`{config}` ends in {state}"), LIMIT, || {
            let node = self.node()?;
            let is = |kind: &str, key: &str, value: &str| node[kind][key] == value;
            let ended = is("labels", "nvidia.com/mig.config.state", state)
                && is("annotations", "nvidia.com/mig.config.state-value", config);
            if !ended {
                anyhow::bail!("labels {}, annotations {}", node["labels"], node["annotations"]);
            }
            Ok(Some(node))
        })
    }

    fn resumed(node: &Value) {
        assert_eq!(node["labels"][CLIENT], "true", "who waited goes on");
        assert!(
            node["annotations"]["nvidia.com/mig.pause-lease"].is_null(),
            "{}",
            node["annotations"]
        );
    }

    /// Waits until the manager has made others wait.
    fn pauses(&self) -> Result<()> {
        wait::until("the client waits", LIMIT, || {
            let node = self.node()?;
            let lease = !node["annotations"]["nvidia.com/mig.pause-lease"].is_null();
            Ok((lease && node["labels"][CLIENT] == "paused-for-mig-change").then_some(()))
        })
    }

    /// How often the manager has come to a step, by the logs of all its containers.
    fn steps(&self, step: &str) -> Result<usize> {
        let mut count = 0;
        for pod in fs::read_dir("/var/log/pods")? {
            let pod = pod?;
            let is_ours = pod
                .file_name()
                .to_string_lossy()
                .starts_with(&format!("kube-system_{}-", self.name));
            let Ok(logs) = fs::read_dir(pod.path().join("gpu-mig-manager")) else {
                continue;
            };
            for log in logs.filter(|_| is_ours) {
                let text = fs::read_to_string(log?.path()).unwrap_or_default();
                count += text.matches(&format!("step {step}: ")).count();
            }
        }
        Ok(count)
    }

    /// Waits until it has come to a step once more; often, since a step may be short.
    fn comes_to(&self, step: &str, before: usize) -> Result<()> {
        let start = Instant::now();
        while self.steps(step)? <= before {
            ensure!(start.elapsed() < LIMIT, "it does not come to step {step}");
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Another pod in the place of this one, whose restarts the kubelet would put off for longer and longer.
    fn renew(&self) -> Result<()> {
        let selector = format!("name={}", self.name);
        let arguments = ["delete", "pod", "-n", "kube-system", "--timeout=60s", "-l", &selector];
        self.cluster.kubectl(arguments)?;
        let set = format!("daemonset/{}", self.name);
        let arguments = ["rollout", "status", "-n", "kube-system", "--timeout=60s", &set];
        self.cluster.kubectl(arguments).map(drop)
    }

    /// SIGKILL, as the kernel does it when memory is short.
    fn kill() -> Result<()> {
        for process in fs::read_dir("/proc")? {
            let process = process?;
            let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
            if command.starts_with(b"gpu-mig-manager\0") {
                let pid = process.file_name().to_string_lossy().into_owned();
                output(Command::new("kill").args(["-KILL", &pid]))?;
                return Ok(());
            }
        }
        anyhow::bail!("the manager does not run")
    }
}

impl Drop for Manager<'_> {
    fn drop(&mut self) {
        // What stays fails the test that counts on its absence.
        for set in [self.name.to_owned(), format!("{}-client", self.name)] {
            let _ = self.cluster.delete_daemon_set(&set);
        }
        for (kind, namespace) in [
            ("clusterrolebinding", "default"),
            ("clusterrole", "default"),
            ("serviceaccount", "kube-system"),
            ("configmap", "kube-system"),
        ] {
            let _ = self.cluster.delete(kind, namespace, self.name, LIMIT);
        }
        let keys = [
            "nvidia.com/mig.config-",
            "nvidia.com/mig.config.state-",
            "nvidia.com/gpu.deploy.client-",
        ];
        let _ = self.label(&keys);
        let annotations = [
            "mig.config.state-value-",
            "mig.config.state-reason-",
            "mig.pause-lease-",
        ];
        let annotations = annotations.map(|name| format!("nvidia.com/{name}"));
        let arguments = ["annotate", "node", self.cluster.node()].map(str::to_owned);
        let _ = self.cluster.kubectl(arguments.iter().chain(&annotations));
    }
}

/// A pod and the number of its process on the node.
fn user(cluster: &Cluster, name: &str) -> Result<String> {
    let manifest = format!(
        "{{ apiVersion: v1, kind: Pod, metadata: {{ name: {name}, labels: {{ app: {name} }} }}, spec: {{ \
         terminationGracePeriodSeconds: 0, containers: [ {{ name: user, image: 'localhost/gpu-e2e/busybox:test', \
         imagePullPolicy: Never, command: [sleep, '77{}'] }} ] }} }}",
        name.len()
    );
    cluster.apply_text(&manifest)?;
    cluster.wait_for_phase("default", name, "Running", LIMIT)?;
    let expected = format!("sleep\07{}\0", &format!("7{}", name.len()));
    wait::until("the pod's process", LIMIT, || {
        for process in fs::read_dir("/proc")? {
            let process = process?;
            if fs::read(process.path().join("cmdline")).unwrap_or_default() == expected.as_bytes() {
                return Ok(Some(process.file_name().to_string_lossy().into_owned()));
            }
        }
        Ok(None)
    })
}

/// Makes a process one that computes on an instance of GPU 0.
fn uses_an_instance(pid: &str) -> Result<()> {
    let list = sim(&["mig", "list", "--gpu", "0"])?;
    let instance = list
        .lines()
        .find_map(|line| line.strip_prefix("gi ")?.split(' ').next())
        .context("an instance")?;
    let amount = ["load", "--gpu", "0", "--util", "9", "--memory-mib", "512"];
    let place = ["--pid", pid, "--gi", instance, "--ci", "0"];
    sim(&[&amount[..], &place].concat()).map(drop)
}

#[test]
fn a_node_is_divided_around_a_running_pod() -> Result<()> {
    let cluster = Cluster::current()?;
    let manager = Manager::start(&cluster, "mig-around", false, 1)?;
    sim(&["mig", "on", "--gpu", "0"])?;
    for start in 0..7 {
        sim(&["mig", "create", &format!("1g.10gb@{start}"), "--gpu", "0"])?;
    }
    let before = devices()?;
    let pid = user(&cluster, "mig-user")?;
    uses_an_instance(&pid)?;
    let pod = || cluster.json(["get", "pod", "mig-user"]);
    let started = pod()?["status"]["containerStatuses"][0].clone();

    manager.ask("all-1g.10gb")?;
    let node = manager.ends("success", "all-1g.10gb")?;
    Manager::resumed(&node);
    let after = devices()?;
    assert_eq!(after.len(), 14, "{after:?}");
    assert_eq!(after[..7], before, "GPU 0 is as it was");
    assert_eq!(
        pod()?["status"]["containerStatuses"][0],
        started,
        "the pod was left alone"
    );

    // Halves would take what the pod uses: it is named, and nobody is made to wait.
    manager.ask("halves")?;
    let node = manager.ends("failed", "halves")?;
    Manager::resumed(&node);
    let reason = node["annotations"]["nvidia.com/mig.config.state-reason"]
        .as_str()
        .unwrap_or_default();
    assert!(reason.contains("pod default/mig-user"), "{reason}");
    assert_eq!(devices()?, after);
    let events = cluster.json(["get", "events", "--field-selector", "reason=MigInstancesInUse"])?;
    let message = events["items"][0]["message"].as_str().unwrap_or_default();
    assert!(message.contains("pod default/mig-user"), "{message}");
    cluster.delete("pod", "default", "mig-user", LIMIT)
}

#[test]
fn what_cannot_be_fails_with_a_reason_and_nobody_waits() -> Result<()> {
    let cluster = Cluster::current()?;
    let manager = Manager::start(&cluster, "mig-impossible", false, 1)?;
    manager.ask("impossible")?;
    let node = manager.ends("failed", "impossible")?;
    Manager::resumed(&node);
    let reason = node["annotations"]["nvidia.com/mig.config.state-reason"]
        .as_str()
        .unwrap_or_default();
    assert!(
        reason.contains("GPU 0: 2 of 4 × `1g.10gb` do not fit beside 1 × 2g.20gb, 1 × 3g.40gb"),
        "{reason}"
    );
    assert!(sim(&["mig", "list", "--gpu", "0"])?.starts_with("mode off"));
    manager.ask("no-such")?;
    let node = manager.ends("failed", "no-such")?;
    Manager::resumed(&node);
    let asked = Instant::now();
    manager.ask("halves")?;
    let node = manager.ends("success", "halves")?;
    eprintln!(
        "a change for which a pod that takes a second to end has to go: {:?}",
        asked.elapsed()
    );
    Manager::resumed(&node);
    assert_eq!(devices()?.len(), 4);
    Ok(())
}

#[test]
fn a_manager_that_was_killed_at_any_step_is_repaired_by_its_next_start() -> Result<()> {
    let cluster = Cluster::current()?;
    // Waiting for programs that take their time to go.
    let manager = Manager::start(&cluster, "mig-killed", true, 8)?;
    manager.ask("halves")?;
    manager.pauses()?;
    Manager::kill()?;
    Manager::resumed(&manager.ends("success", "halves")?);
    assert_eq!(devices()?.len(), 4);

    // In the middle of the change: the driver takes its time.
    for gpu in ["0", "1"] {
        sim(&["slow", "--gpu", gpu, "--milliseconds", "40"])?;
    }
    manager.ask("all-1g.10gb")?;
    wait::until("some of the instances are changed", LIMIT, || {
        let found = devices()?;
        Ok((found.iter().any(|device| device.contains("1g.10gb"))).then_some(()))
    })?;
    Manager::kill()?;
    ensure!(devices()?.len() < 14, "it was killed too late");
    for gpu in ["0", "1"] {
        sim(&["restore", "--gpu", gpu])?;
    }
    Manager::resumed(&manager.ends("success", "all-1g.10gb")?);
    assert_eq!(devices()?.len(), 14);

    // While a pod that has to go may not be evicted yet.
    let pid = user(&cluster, "mig-evicted")?;
    uses_an_instance(&pid)?;
    cluster.apply_text(
        "{ apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: { name: mig-evicted }, spec: { maxUnavailable: 0, \
         selector: { matchLabels: { app: mig-evicted } } } }",
    )?;
    manager.ask("halves")?;
    manager.pauses()?;
    Manager::kill()?;
    cluster.delete("poddisruptionbudget", "default", "mig-evicted", LIMIT)?;
    wait::until("the pod is evicted", LIMIT, || {
        let pods = cluster.json(["get", "pods", "-l", "app=mig-evicted"])?;
        Ok(pods["items"].as_array().is_some_and(Vec::is_empty).then_some(()))
    })?;
    // Only a real process ends with its pod.
    sim(&["unload", "--gpu", "0", "--pid", &pid])?;
    Manager::resumed(&manager.ends("success", "halves")?);
    assert_eq!(devices()?.len(), 4);
    Ok(())
}

#[test]
#[ignore = "e2e/soak runs it"]
fn a_manager_that_is_killed_at_each_of_its_steps_is_repaired_each_time() -> Result<()> {
    let cluster = Cluster::current()?;
    let manager = Manager::start(&cluster, "mig-soak", false, 2)?;
    manager.ask("halves")?;
    manager.ends("success", "halves")?;
    let mut interrupted = 0;
    for round in 0..5 {
        for step in ["pause", "wait", "apply", "resume"] {
            let (config, devices_then) = [("all-1g.10gb", 14), ("halves", 4)]
                .into_iter()
                .find(|(config, _)| {
                    manager
                        .node()
                        .is_ok_and(|node| node["labels"]["nvidia.com/mig.config"] != *config)
                })
                .context("another configuration")?;
            manager.renew()?;
            let before = manager.steps(step)?;
            // So that a change takes longer than the moment at which the manager is killed.
            for gpu in ["0", "1"] {
                sim(&["slow", "--gpu", gpu, "--milliseconds", "5"])?;
            }
            manager.ask(config)?;
            manager.comes_to(step, before)?;
            // At another moment of the step in each round.
            thread::sleep(Duration::from_millis(35 * round));
            Manager::kill()?;
            let node = manager.node()?;
            interrupted += u32::from(node["labels"]["nvidia.com/mig.config.state"] == "pending");
            for gpu in ["0", "1"] {
                sim(&["restore", "--gpu", gpu])?;
            }
            Manager::resumed(&manager.ends("success", config)?);
            ensure!(devices()?.len() == devices_then, "after {step}: {:?}", devices()?);
        }
    }
    // The last step is short, and may be over.
    ensure!(interrupted >= 14, "only {interrupted} of 20 changes were interrupted");
    Ok(())
}
