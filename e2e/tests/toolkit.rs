//! The toolkit on a real containerd: set up, used by pods, taken back; and an edit that containerd does not survive.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use gpu_e2e::{Cluster, GpuNode, pods, wait};
use gpu_runtime_config::{
    Runtime, Settings,
    apply::{
        Apply, Health, Outcome, Restart, Socket, Stop, apply, containerd_version, lock, read_containerd, read_receipt,
    },
    containerd,
};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(1);
const MAIN: &str = "/etc/containerd/config.toml";
const DROP_IN: &str = "/etc/containerd/conf.d/99-nvidia.toml";
const RECEIPT: &str = "/etc/containerd/config.toml.gpu-runtime-config";
const SOCKET: &str = "/run/containerd/containerd.sock";
const INSTALL_DIR: &str = "/var/lib/gpu-e2e/nvidia";
const DAEMON_SET: &str = "nvidia-container-toolkit-daemonset";

/// The node's own file, given back however a test ends.
struct Original {
    text: String,
}

impl Original {
    /// Takes the imports out of the file, as it is on a node that nobody has prepared.
    fn made_plain() -> Result<(Self, String)> {
        let text = fs::read_to_string(MAIN).context("containerd has no file")?;
        let mut plain = String::new();
        for line in text.lines().filter(|line| !line.starts_with("imports")) {
            plain.push_str(line);
            plain.push('\n');
        }
        ensure!(plain != text, "the node's file imports nothing any more");
        fs::write(MAIN, &plain)?;
        Ok((Self { text }, plain))
    }
}

impl Drop for Original {
    fn drop(&mut self) {
        // What is left over fails the next test, which finds a file that it does not know.
        let _ = fs::write(MAIN, &self.text);
    }
}

/// Deletes what was applied also where a test fails, so that the next finds the node as it was.
struct Applied<'a> {
    cluster: &'a Cluster,
    objects: Vec<(&'static str, &'static str, String)>,
}

impl<'a> Applied<'a> {
    /// The toolkit's DaemonSet and its runtime class.
    fn toolkit(cluster: &'a Cluster, node: &GpuNode) -> Result<Self> {
        let applied = Self {
            cluster,
            objects: vec![
                ("runtimeclass", "default", "nvidia".to_owned()),
                ("daemonset", "kube-system", DAEMON_SET.to_owned()),
            ],
        };
        cluster.apply_text(&node.toolkit_manifest(INSTALL_DIR)?)?;
        Ok(applied)
    }

    fn delete(&mut self) -> Result<()> {
        while let Some((kind, namespace, name)) = self.objects.pop() {
            self.cluster.delete(kind, namespace, &name, Duration::from_mins(2))?;
        }
        Ok(())
    }
}

impl Drop for Applied<'_> {
    fn drop(&mut self) {
        let _ = self.delete();
    }
}

fn pod(name: &str, more: &Value) -> Value {
    let mut container = json!({
        "name": "main",
        "image": "localhost/gpu-e2e/gpu-stack:test",
        "imagePullPolicy": "Never",
        "command": ["sleep", "600"],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        container[key] = value.clone();
    }
    let mut pod = pods::of_container(name, &container);
    pod["spec"]["runtimeClassName"] = json!("nvidia");
    pod
}

fn containerd() -> Result<u32> {
    for entry in fs::read_dir("/proc").context("cannot list /proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse() else {
            continue;
        };
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.trim() == "containerd" {
            return Ok(pid);
        }
    }
    anyhow::bail!("containerd does not run")
}

#[test]
fn pods_of_the_runtime_class_see_their_gpu_and_every_byte_comes_back() -> Result<()> {
    let cluster = Cluster::current()?;
    let node = GpuNode::ready(&cluster)?;
    let (_original, plain) = Original::made_plain()?;
    let before = containerd()?;
    let mut applied = Applied::toolkit(&cluster, &node)?;
    wait::until("containerd runs anew with the drop-in", LIMIT, || {
        let is_there = Path::new(DROP_IN).exists() && containerd()? != before;
        Ok(is_there.then_some(()))
    })?;
    wait_for_log(&cluster, "the node is set up")?;
    let set_up = containerd()?;
    let main = fs::read_to_string(MAIN)?;
    let lines: Vec<&str> = main.lines().filter(|line| !line.starts_with("imports")).collect();
    assert_eq!(lines, plain.lines().collect::<Vec<_>>(), "only the import is new");
    cluster.wait_for_ready_node(LIMIT)?;

    // A GPU of its own by name, and one that the kubelet gives.
    let uuid = node.uuids()?.pop().context("a GPU")?;
    let by_name = pod(
        "by-name",
        &json!({ "env": [{ "name": "NVIDIA_VISIBLE_DEVICES", "value": uuid }] }),
    );
    let by_kubelet = pod(
        "by-kubelet",
        &json!({ "resources": { "limits": { "nvidia.com/gpu": 1 } } }),
    );
    for pod in [&by_name, &by_kubelet] {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        applied.objects.push(("pod", "default", name.clone()));
        cluster.apply(pod)?;
        cluster.wait_for_phase("default", &name, "Running", LIMIT)?;
        let listing = cluster.exec("default", &name, &["nvidia-smi", "-L"])?.stdout;
        assert_eq!(listing.matches("UUID: GPU-").count(), 1, "{name}: {listing}");
        assert!(name != "by-name" || listing.contains(&uuid), "{listing}");
    }
    assert_eq!(containerd()?, set_up, "once is enough");

    // A DaemonSet that goes takes back what it did, and leaves what containers refer to.
    applied.delete()?;
    wait::until("containerd runs anew without the drop-in", LIMIT, || {
        let is_gone = !Path::new(DROP_IN).exists() && !Path::new(RECEIPT).exists() && containerd()? != set_up;
        Ok(is_gone.then_some(()))
    })?;
    assert_eq!(fs::read_to_string(MAIN)?, plain);
    for name in [
        "nvidia-container-runtime.cdi",
        "nvidia-cdi-hook",
        ".config/nvidia-container-runtime/config.toml",
    ] {
        assert!(Path::new(INSTALL_DIR).join("toolkit").join(name).exists(), "{name}");
    }
    cluster.wait_for_ready_node(LIMIT)?;
    // These describe the same devices as other tests' files do not, but they are this test's.
    for name in ["nvidia.yaml", "management.nvidia.com-gpu.yaml"] {
        fs::remove_file(Path::new("/var/run/cdi").join(name)).with_context(|| format!("no `{name}`"))?;
    }
    Ok(())
}

/// containerd 1.6 has no CDI, and lets an imported file replace the CRI plugin's whole table: its own file is edited.
#[test]
fn containerd_1_6_offers_the_runtime_class_and_every_byte_comes_back() -> Result<()> {
    let cluster = Cluster::current()?;
    let version = containerd_version(Path::new("/"), SOCKET.as_ref(), None, &Stop::default());
    assert_eq!(version.map(|version| version.to_string()).as_deref(), Some("1.6"));
    let node = GpuNode::ready(&cluster)?;
    let plain = fs::read_to_string(MAIN)?;
    let before = containerd()?;
    let mut applied = Applied::toolkit(&cluster, &node)?;
    wait::until("containerd runs anew", LIMIT, || {
        Ok((containerd()? != before).then_some(()))
    })?;
    wait_for_log(&cluster, "the node is set up")?;
    wait_for_log(&cluster, "containerd 1.6 has no CDI")?;
    let set_up = containerd()?;
    assert!(!Path::new(DROP_IN).exists(), "the main file is edited itself");
    let main = fs::read_to_string(MAIN)?;
    let mut lines = main.lines();
    for line in plain.lines() {
        assert!(lines.any(|other| other == line), "lost `{line}` in\n{main}");
    }
    cluster.wait_for_ready_node(LIMIT)?;

    let uuid = node.uuids()?.pop().context("a GPU")?;
    let asks = json!({ "env": [{ "name": "NVIDIA_VISIBLE_DEVICES", "value": uuid }] });
    let mut with_runc = pod("with-runc", &asks);
    with_runc["spec"]
        .as_object_mut()
        .context("a spec")?
        .remove("runtimeClassName");
    for pod in [&pod("of-class", &asks), &with_runc] {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        applied.objects.push(("pod", "default", name.clone()));
        cluster.apply(pod)?;
        cluster.wait_for_phase("default", &name, "Running", LIMIT)?;
    }
    let listing = cluster.exec("default", "of-class", &["nvidia-smi", "-L"])?.stdout;
    assert_eq!(listing.matches("UUID: GPU-").count(), 1, "{listing}");
    assert!(listing.contains(&uuid), "{listing}");
    let devices = cluster.exec("default", "with-runc", &["ls", "/dev"])?.stdout;
    assert!(!devices.contains("nvidia"), "{devices}");
    assert_eq!(containerd()?, set_up, "once is enough");

    applied.delete()?;
    wait::until("containerd runs anew without the runtimes", LIMIT, || {
        let is_gone = !Path::new(RECEIPT).exists() && containerd()? != set_up;
        Ok(is_gone.then_some(()))
    })?;
    assert_eq!(fs::read_to_string(MAIN)?, plain);
    cluster.wait_for_ready_node(LIMIT)
}

fn wait_for_log(cluster: &Cluster, line: &str) -> Result<()> {
    wait::until(&format!("the toolkit says `{line}`"), LIMIT, || {
        let selector = format!("app={DAEMON_SET}");
        let log = cluster
            .kubectl(["logs", "-n", "kube-system", "-l", &selector, "--tail=-1"])?
            .stdout;
        ensure!(log.contains(line), "it said: {log}");
        Ok(Some(()))
    })
}

#[test]
fn an_edit_that_containerd_does_not_survive_is_taken_back() -> Result<()> {
    let cluster = Cluster::current()?;
    let root = Path::new("/");
    let before = fs::read_to_string(MAIN)?;
    let stop = Stop::default();
    let lock = lock(root, &stop)?;
    let daemon = containerd_version(root, SOCKET.as_ref(), None, &stop);
    ensure!(daemon.is_some(), "the containerd that runs does not tell its version");
    let receipt = read_receipt(root, MAIN.as_ref())?;
    let files = read_containerd(root, MAIN.as_ref(), DROP_IN.as_ref(), receipt.as_ref())?;
    let settings = Settings {
        runtimes: vec![Runtime::new("nvidia", "/bin/false")],
        ..Settings::default()
    };
    let mut plan = containerd::configure(&files, daemon, containerd::Placement::Auto, &settings, receipt.as_ref())?;
    let drop_in = plan.changes.first_mut().context("nothing to change")?;
    // No plan of ours looks like this: it stands for all that nobody has thought of.
    drop_in.after = Some("version = [\n".to_owned());

    let how = Apply {
        host_root: root.to_owned(),
        main: MAIN.into(),
        restart: Restart::Signal {
            socket: Socket::own(SOCKET),
        },
        health: Some(Health {
            socket: Socket::own(SOCKET),
            timeout: Duration::from_secs(15),
            settle: Duration::from_secs(2),
            new_process: true,
        }),
        stop,
        tell: |_| {},
    };
    let outcome = apply(&plan, &how, &lock)?;
    let Outcome::RolledBack { cause, still } = outcome else {
        anyhow::bail!("containerd took it: {outcome:?}");
    };
    assert!(still.is_none(), "containerd does not live: {still:?}, after: {cause}");
    assert_eq!(fs::read_to_string(MAIN)?, before);
    assert!(!Path::new(DROP_IN).exists() && !Path::new(RECEIPT).exists());
    cluster.wait_for_ready_node(LIMIT)?;
    cluster.apply(&json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "after-rollback" },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{ "name": "main", "image": "localhost/gpu-e2e/busybox:test", "imagePullPolicy": "Never", "command": ["true"] }],
        },
    }))?;
    cluster.wait_for_phase("default", "after-rollback", "Succeeded", LIMIT)?;
    cluster.delete("pod", "default", "after-rollback", LIMIT)
}
