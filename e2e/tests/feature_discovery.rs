//! Labels of a simulated node through a real API server.

use std::{
    env, fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use gpu_e2e::{Cluster, GpuNode, wait};
use serde_json::Value;

const LIMIT: Duration = Duration::from_mins(1);
/// The node whose labels are looked at: not the device plugin's, which other tests count on.
const FOLDER: &str = "/var/lib/gpu-e2e/labelled";

fn sim(arguments: &[&str]) -> Result<String> {
    let stack = env::var("GPU_E2E_STACK").context("GPU_E2E_STACK is not set: start the tests with `e2e/run`")?;
    let program = Path::new(&stack).join("gpu-sim");
    let output = Command::new(program).args(arguments).args(["--dir", FOLDER]).output()?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "gpu-sim {arguments:?} failed: {complaint}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Feature discovery on the cluster, until the end of a test.
struct Labeller<'a> {
    cluster: &'a Cluster,
    name: &'static str,
}

impl<'a> Labeller<'a> {
    /// `interval` is the time between two rounds.
    fn start(cluster: &'a Cluster, name: &'static str, node_labels: bool, interval: &str) -> Result<Self> {
        GpuNode::ready(cluster)?; // has the image
        if Path::new(FOLDER).exists() {
            fs::remove_dir_all(FOLDER)?;
        }
        sim(&["new", "--profile", "h100", "--gpus", "2", "--seed", "3"])?;
        cluster.apply_text(include_str!("../manifests/nodefeature-crd.yaml"))?;
        cluster.kubectl([
            "wait",
            "--for=condition=Established",
            "--timeout=30s",
            "crd/nodefeatures.nfd.k8s-sigs.io",
        ])?;
        let labeller = Self { cluster, name };
        let manifest = include_str!("../manifests/feature-discovery.yaml")
            .replace("LABELLER", name)
            .replace("MODE", &node_labels.to_string())
            .replace("INTERVAL", interval)
            .replace("path: DRIVER_ROOT", &format!("path: {FOLDER}/root"))
            .replace("SIMULATION", FOLDER);
        cluster.apply_text(&manifest)?;
        Ok(labeller)
    }

    /// Deletes the pod, and waits for the next one.
    fn restart(&self) -> Result<()> {
        let selector = format!("name={}", self.name);
        self.cluster
            .kubectl(["delete", "pod", "-n", "kube-system", "-l", &selector, "--wait"])?;
        self.wait_for_pod()
    }

    /// Changes a variable of the set, which replaces the pod as an upgrade would.
    fn set(&self, variable: &str) -> Result<()> {
        let set = format!("daemonset/{}", self.name);
        self.cluster
            .kubectl(["set", "env", "-n", "kube-system", &set, variable])?;
        self.wait_for_pod()
    }

    fn wait_for_pod(&self) -> Result<()> {
        let set = format!("daemonset/{}", self.name);
        self.cluster
            .kubectl(["rollout", "status", "-n", "kube-system", "--timeout=60s", &set])
            .map(drop)
    }

    /// How many requests of it changed something, or tried to.
    fn writes(&self) -> Result<usize> {
        let state = env::var("GPU_E2E_STATE").context("GPU_E2E_STATE is not set")?;
        let path = Path::new(&state).join("logs/audit.log");
        let audit = fs::read_to_string(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        let account = format!("\"system:serviceaccount:kube-system:{}\"", self.name);
        let writes = |line: &&str| {
            let verbs = ["patch", "create", "update", "delete"];
            line.contains(&account) && verbs.iter().any(|verb| line.contains(&format!("\"verb\":\"{verb}\"")))
        };
        Ok(audit.lines().filter(writes).count())
    }

    /// A round a second, for five, and no write.
    fn is_steady(&self) -> Result<()> {
        let before = self.writes()?;
        ensure!(before > 0, "the audit log shows no write at all");
        std::thread::sleep(Duration::from_secs(5));
        assert_eq!(self.writes()?, before);
        Ok(())
    }
}

impl Drop for Labeller<'_> {
    fn drop(&mut self) {
        // What stays fails the test that counts on its absence.
        // The pod takes its labels back with the rights of the role, which so has to outlive it.
        let _ = self.cluster.delete_daemon_set(self.name);
        let _ = self.cluster.delete("clusterrolebinding", "default", self.name, LIMIT);
        let _ = self.cluster.delete("clusterrole", "default", self.name, LIMIT);
        let _ = self.cluster.delete("serviceaccount", "kube-system", self.name, LIMIT);
        let _ = self
            .cluster
            .delete("crd", "default", "nodefeatures.nfd.k8s-sigs.io", LIMIT);
    }
}

/// `kubectl get --watch` of an object's labels, of which every version becomes a line.
struct Watch {
    child: Child,
    file: String,
}

impl Watch {
    /// Begins once the first version is there. `labels` is where in the object they are.
    fn start(name: &str, object: &[&str], labels: &str) -> Result<Self> {
        let file = format!("/var/lib/gpu-e2e/watch-{name}");
        let out = fs::File::create(&file)?;
        let child = Command::new("kubectl")
            .arg("get")
            .args(object)
            .args(["--watch", "-o", &format!("jsonpath={{{labels}}}{{\"\\n\"}}")])
            .stdin(Stdio::null())
            .stdout(out)
            .spawn()
            .context("cannot start kubectl")?;
        let watch = Self { child, file };
        wait::until("the watch", LIMIT, || Ok((!watch.versions()?.is_empty()).then_some(())))?;
        Ok(watch)
    }

    fn versions(&self) -> Result<Vec<Value>> {
        let text = fs::read_to_string(&self.file)?;
        // The last line may be being written.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    /// No version lacks a label that the first had, and there are several.
    fn saw_no_label_go(&self) -> Result<()> {
        let versions = self.versions()?;
        ensure!(versions.len() > 1, "nothing happened: {versions:?}");
        let first = versions[0].as_object().context("labels")?;
        ensure!(first.contains_key("nvidia.com/gpu.product"), "{first:?}");
        for version in &versions {
            for key in first.keys() {
                ensure!(version.get(key).is_some(), "{key} is gone in {versions:#?}");
            }
        }
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It has no end of its own.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How often a MIG device shows up after it was made.
fn follows_mig(what: &str, read: impl Fn() -> Result<Value>) -> Result<()> {
    sim(&["mig", "on", "--gpu", "1"])?;
    let created = sim(&["mig", "create", "1g.10gb", "--gpu", "1"])?;
    let instance = created
        .strip_prefix("gi ")
        .and_then(|rest| rest.split_whitespace().next())
        .with_context(|| format!("gpu-sim says `{created}`"))?;
    let made = Instant::now();
    wait::until(&format!("{what} has the MIG device"), LIMIT, || {
        Ok((read()?["nvidia.com/mig-1g.10gb.count"] == "1").then_some(()))
    })?;
    let took = made.elapsed();
    ensure!(took < Duration::from_secs(5), "the labels took {took:?}");
    sim(&["mig", "destroy", instance, "--gpu", "1"])?;
    sim(&["mig", "off", "--gpu", "1"])?;
    wait::until(&format!("{what} has no MIG device"), LIMIT, || {
        Ok(read()?["nvidia.com/mig-1g.10gb.count"].is_null().then_some(()))
    })
}

#[test]
fn a_node_feature_object_follows_the_node_and_outlives_the_pod() -> Result<()> {
    let cluster = Cluster::current()?;
    let name = format!("nvidia-features-for-{}", cluster.node());
    // So that what follows soon does so because it was noticed.
    let labeller = Labeller::start(&cluster, "gfd-object", false, "1h")?;
    let object = || cluster.json(["get", "nodefeature", &name, "-n", "kube-system"]);
    let labels = || Ok(object()?["spec"]["labels"].clone());
    wait::until("the NodeFeature object", LIMIT, || {
        Ok((labels()?["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3").then_some(()))
    })?;
    let made = object()?;
    assert_eq!(
        made["metadata"]["labels"]["nfd.node.kubernetes.io/node-name"],
        cluster.node()
    );
    assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "DaemonSet");
    assert_eq!(made["spec"]["labels"]["nvidia.com/gpu.count"], "2");
    follows_mig("the object", labels)?;

    let watch = Watch::start("object", &["nodefeature", &name, "-n", "kube-system"], ".spec.labels")?;
    labeller.set("GFD_SLEEP_INTERVAL=1s")?;
    wait::until("the new pod's object", LIMIT, || {
        let owners = object()?["metadata"]["ownerReferences"].clone();
        Ok((owners != made["metadata"]["ownerReferences"]).then_some(()))
    })?;
    assert_eq!(object()?["metadata"]["uid"], made["metadata"]["uid"]);
    wait::until("the watch has seen it", LIMIT, || {
        Ok((watch.versions()?.len() > 1).then_some(()))
    })?;
    labeller.is_steady()?;
    watch.saw_no_label_go()
}

#[test]
fn node_labels_place_a_pod_and_stay_without_a_write() -> Result<()> {
    let cluster = Cluster::current()?;
    let labeller = Labeller::start(&cluster, "gfd-node", true, "1s")?;
    let node = || cluster.json(["get", "node", cluster.node()]);
    let labels = || Ok(node()?["metadata"]["labels"].clone());
    wait::until("the node's labels", LIMIT, || {
        Ok((labels()?["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3").then_some(()))
    })?;
    assert_eq!(labels()?["feature.node.kubernetes.io/pci-10de.present"], "true");
    assert_eq!(labels()?["feature.node.kubernetes.io/pci-0302_10de.present"], "true");
    cluster.apply_text(include_str!("../manifests/node-selector.yaml"))?;
    let placed = cluster.wait_for_phase("default", "pinned-to-h100", "Succeeded", LIMIT);
    cluster.delete("pod", "default", "pinned-to-h100", LIMIT)?;
    placed?;
    follows_mig("the node", labels)?;

    // A label that somebody took off comes back, and what others have set stays.
    cluster.kubectl([
        "label",
        "node",
        cluster.node(),
        "nvidia.com/gpu.family-",
        "example.com/theirs=x",
    ])?;
    wait::until("the label is back", LIMIT, || {
        Ok((labels()?["nvidia.com/gpu.family"] == "hopper").then_some(()))
    })?;
    assert_eq!(labels()?["example.com/theirs"], "x");
    cluster.kubectl(["label", "node", cluster.node(), "example.com/theirs-"])?;

    // A new start has a new time.
    let started = labels()?["nvidia.com/gfd.timestamp"].clone();
    let watch = Watch::start("node", &["node", cluster.node()], ".metadata.labels")?;
    labeller.restart()?;
    wait::until("the new pod's labels", LIMIT, || {
        Ok((labels()?["nvidia.com/gfd.timestamp"] != started).then_some(()))
    })?;
    wait::until("the watch has seen them", LIMIT, || {
        let versions = watch.versions()?;
        let new = |labels: &Value| labels["nvidia.com/gfd.timestamp"] != started;
        Ok(versions.iter().any(new).then_some(()))
    })?;
    labeller.is_steady()?;
    watch.saw_no_label_go()?;

    // Node Feature Discovery comes, finds a label as it would write it, and notes that it is its own.
    let note = "nfd.node.kubernetes.io/feature-labels";
    cluster.kubectl(["annotate", "node", cluster.node(), &format!("{note}=pci-10de.present")])?;
    let steady = labeller.is_steady();

    // Taken back by who put them there, but for that one.
    labeller.set("GPU_REMOVE_ON_EXIT=true")?;
    drop(labeller);
    let gone = wait::until("the labels are gone", LIMIT, || {
        let labels = labels()?;
        let gone = |key: &str| labels[key].is_null();
        let all = gone("nvidia.com/gpu.product") && gone("feature.node.kubernetes.io/pci-0302_10de.present");
        Ok(all.then_some(()))
    });
    let theirs = labels()?["feature.node.kubernetes.io/pci-10de.present"].clone();
    cluster.kubectl(["annotate", "node", cluster.node(), &format!("{note}-")])?;
    cluster.kubectl([
        "label",
        "node",
        cluster.node(),
        "feature.node.kubernetes.io/pci-10de.present-",
    ])?;
    steady?;
    gone?;
    ensure!(theirs == "true", "Node Feature Discovery's label is {theirs}");
    Ok(())
}
