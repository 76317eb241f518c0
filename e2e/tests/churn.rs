//! Pods come and go while the kubelet and the device plugin are killed: none gets a wrong device, or one that another has.
//!
//! Each pod holds a lock named by each of its GPUs for as long as its program lives, however that ends, and writes down what it
//! sees; what the kubelet has given it is in the kubelet's checkpoint.

#![expect(clippy::print_stderr, reason = "the figures are for whoever runs it")]

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use gpu_e2e::{Checkpoint, Cluster, GpuNode, plugin, pods::uuids};
use serde_json::{Value, json};

/// Where the pods meet.
const FOLDER: &str = "/var/lib/gpu-e2e/churn";

/// How many pods there are at a time: more than there are GPUs, so that some wait for the first that is free.
const PODS: usize = 6;

/// How many have to succeed before the next kill.
const BETWEEN_KILLS: usize = 6;

/// How long that may take, with a kubelet that starts anew and a plugin after it.
const LIMIT: Duration = Duration::from_mins(2);

/// What each pod runs. Exit codes: 3 for a GPU that another pod has, 4 where there is none to see.
const SCRIPT: &str = r#"
listing=$(nvidia-smi -L) || exit 4
echo "$listing" >"/churn/seen/$NAME"
IFS='
'
file=3
for line in $listing; do
	uuid=${line##*UUID: }
	eval "exec $file>/churn/held/${uuid%)}"
	flock --nonblock $file || exit 3
	file=$((file + 1))
done
exec sleep 2
"#;

fn pod(name: &str, gpus: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": { "e2e": "churn" } },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "containers": [{
                "name": "main",
                "image": gpu_e2e::images::STACK,
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", SCRIPT],
                "env": [{ "name": "NAME", "value": name }],
                "resources": { "limits": { "nvidia.com/gpu": gpus } },
                "volumeMounts": [{ "name": "churn", "mountPath": "/churn" }],
            }],
            "volumes": [{ "name": "churn", "hostPath": { "path": FOLDER } }],
        },
    })
}

/// A pod that has not ended as far as is known.
#[derive(Default)]
struct Live {
    gpus: usize,
    /// What the kubelet has given it, once it has.
    given: Vec<String>,
}

#[derive(Debug, Default)]
struct Counts {
    succeeded: usize,
    /// Not admitted, because the kubelet had no plugin at that moment; Kubernetes fails such pods for good, after a restart
    /// of the kubelet also those whose program has just ended.
    rejected: usize,
    /// What they saw was compared with what the checkpoint said that they were given.
    compared: usize,
}

struct Churn<'a> {
    cluster: &'a Cluster,
    live: BTreeMap<String, Live>,
    made: usize,
    counts: Counts,
}

impl<'a> Churn<'a> {
    fn new(cluster: &'a Cluster) -> Result<Self> {
        match fs::remove_dir_all(FOLDER) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        for name in ["seen", "held"] {
            fs::create_dir_all(Path::new(FOLDER).join(name))?;
        }
        Ok(Self {
            cluster,
            live: BTreeMap::new(),
            made: 0,
            counts: Counts::default(),
        })
    }

    /// Goes on until so many more have succeeded.
    fn go_on(&mut self, pods: usize) -> Result<()> {
        let (enough, started) = (self.counts.succeeded + pods, Instant::now());
        while self.counts.succeeded < enough {
            ensure!(
                started.elapsed() < LIMIT,
                "{pods} pods have not succeeded within {LIMIT:?}: {:?}",
                self.counts
            );
            self.fill_up()?;
            self.look()?;
        }
        Ok(())
    }

    /// Waits until all have ended.
    fn finish(&mut self) -> Result<()> {
        let started = Instant::now();
        while !self.live.is_empty() {
            ensure!(started.elapsed() < LIMIT, "pods have not ended: {:?}", self.live.keys());
            self.look()?;
        }
        Ok(())
    }

    /// Makes pods for those that have ended; every third wants two GPUs.
    fn fill_up(&mut self) -> Result<()> {
        let mut items = Vec::new();
        while self.live.len() < PODS {
            let (name, gpus) = (format!("churn-{}", self.made), 1 + usize::from(self.made % 3 == 2));
            self.made += 1;
            items.push(pod(&name, gpus));
            self.live.insert(
                name,
                Live {
                    gpus,
                    ..Live::default()
                },
            );
        }
        if items.is_empty() {
            return Ok(());
        }
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
        self.cluster.apply(&list).map(drop)
    }

    fn look(&mut self) -> Result<()> {
        thread::sleep(Duration::from_millis(200));
        let pods = self.cluster.json(["get", "pods", "-l", "e2e=churn"])?;
        let checkpoint = Checkpoint::read()?;
        let twice = checkpoint.given_twice();
        ensure!(twice.is_empty(), "the kubelet has given away {twice:?} twice");
        let mut ended = Vec::new();
        for pod in pods["items"].as_array().context("no list of pods")? {
            let name = pod["metadata"]["name"].as_str().context("a pod without a name")?;
            let Some(live) = self.live.get_mut(name) else {
                continue; // it is being deleted
            };
            let given = checkpoint.of(pod["metadata"]["uid"].as_str().context("a pod without a UID")?);
            if live.given.is_empty() {
                live.given = given;
            } else {
                // It is forgotten some time after the pod has ended.
                ensure!(
                    given.is_empty() || given == live.given,
                    "{name} was given {:?}, and now {given:?}",
                    live.given
                );
            }
            match pod["status"]["phase"].as_str() {
                Some("Succeeded") => {
                    self.counts.compare(name, live)?;
                    self.counts.succeeded += 1;
                }
                Some("Failed") if pod["status"]["reason"] == "UnexpectedAdmissionError" => {
                    if seen(name).exists() {
                        self.counts.compare(name, live)?;
                    }
                    self.counts.rejected += 1;
                }
                Some("Failed") => bail!("{name} failed: {}", pod["status"]),
                _ => continue,
            }
            ended.push(name.to_owned());
        }
        self.forget(&ended)
    }

    fn forget(&mut self, ended: &[String]) -> Result<()> {
        if ended.is_empty() {
            return Ok(());
        }
        self.live.retain(|name, _| !ended.contains(name));
        let command = ["delete", "pods", "--wait=false"].into_iter();
        self.cluster
            .kubectl(command.chain(ended.iter().map(String::as_str)))
            .map(drop)
    }
}

impl Drop for Churn<'_> {
    fn drop(&mut self) {
        // Where a test fails, its pods are in the way of the next.
        let _ = self
            .cluster
            .kubectl(["delete", "pods", "-l", "e2e=churn", "--wait", "--timeout=60s"]);
    }
}

impl Counts {
    /// Compares what a pod has seen with what it was given.
    fn compare(&mut self, name: &str, live: &Live) -> Result<()> {
        let listing = fs::read_to_string(seen(name)).with_context(|| format!("{name} has seen nothing"))?;
        let mut seen = uuids(&listing);
        seen.sort();
        ensure!(
            seen.len() == live.gpus,
            "{name} asked for {} and sees {seen:?}",
            live.gpus
        );
        if !live.given.is_empty() {
            ensure!(
                seen == live.given,
                "{name} was given {:?} and sees {seen:?}",
                live.given
            );
            self.compared += 1;
        }
        Ok(())
    }
}

fn seen(name: &str) -> PathBuf {
    Path::new(FOLDER).join("seen").join(name)
}

#[test]
fn no_pod_gets_a_wrong_or_anothers_gpu_while_kubelet_and_plugin_are_killed() -> Result<()> {
    check(3)
}

#[test]
#[ignore = "e2e/soak runs it"]
fn nor_while_they_are_killed_twenty_times() -> Result<()> {
    check(20)
}

fn check(kills: usize) -> Result<()> {
    let cluster = Cluster::current()?;
    let node = GpuNode::ready(&cluster)?;
    let mut churn = Churn::new(&cluster)?;
    churn.go_on(BETWEEN_KILLS)?;
    for kill in 0..kills {
        // The kubelet lets a plugin that was killed alone wait ever longer before it starts it again.
        if kill % 2 == 0 {
            plugin::kill()?;
            cluster.kill("kubelet")?;
        } else {
            cluster.kill("kubelet")?;
            plugin::kill()?;
        }
        churn.go_on(BETWEEN_KILLS)?;
    }
    churn.finish()?;
    // How many were not admitted is the kubelet's doing; that those that were are right is ours.
    eprintln!("{:?}", churn.counts);
    assert!(churn.counts.compared * 2 > churn.counts.succeeded, "{:?}", churn.counts);
    drop(churn);
    plugin::renew(&cluster)?;
    node.wait_for_allocatable(&cluster, "4")
}
