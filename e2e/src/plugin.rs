//! The device plugin on the node: its process, and its configuration.

use std::{
    fs,
    path::PathBuf,
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::{Cluster, wait};

const NAMESPACE: &str = "kube-system";
const SELECTOR: &str = "name=nvidia-device-plugin-ds";
const LIMIT: Duration = Duration::from_mins(1);

/// The pid and the start time of the one plugin on the node, which name the process for good.
///
/// # Errors
/// If there is not just one, or it was restarted since its pod was made.
pub fn process(cluster: &Cluster) -> Result<(String, String)> {
    let pods = cluster.json(["get", "pods", "-n", NAMESPACE, "-l", SELECTOR])?;
    let status = &pods["items"][0]["status"]["containerStatuses"][0];
    ensure!(
        pods["items"].as_array().is_some_and(|pods| pods.len() == 1),
        "not one plugin pod: {pods}"
    );
    ensure!(status["restartCount"] == 0, "the plugin was restarted: {status}");
    let mut found = pids()?;
    ensure!(found.len() == 1, "not one plugin process: {found:?}");
    let pid = found.remove(0);
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(") ").context("a strange /proc/<pid>/stat")?.1;
    let start = after_name.split(' ').nth(19).context("a short /proc/<pid>/stat")?;
    Ok((pid, start.to_owned()))
}

fn pids() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot list /proc")? {
        let pid = entry?.file_name().to_string_lossy().into_owned();
        // One that has ended meanwhile has none.
        if fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"nvidia-device-plugin\0")) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Kills the plugin's process, if one runs; the kubelet starts it again.
///
/// # Errors
/// If the processes of the node cannot be listed.
pub fn kill() -> Result<()> {
    for pid in pids()? {
        // It may have ended by itself.
        let _ = Command::new("sh")
            .args(["-c", &format!("kill -s KILL {pid}")])
            .status()?;
    }
    Ok(())
}

/// Has the plugin's pod made anew, as an upgrade does, and waits until the new one has registered.
///
/// # Errors
/// If it has not within a minute.
pub fn renew(cluster: &Cluster) -> Result<()> {
    let delete = [
        "-n",
        NAMESPACE,
        "delete",
        "pods",
        "-l",
        SELECTOR,
        "--wait",
        "--timeout=60s",
    ];
    cluster.kubectl(delete)?;
    wait::until("the new plugin has registered", LIMIT, || {
        Ok(log(cluster)?.contains("registered with the kubelet").then_some(()))
    })
}

/// What the plugin has logged since it was started.
///
/// # Errors
/// See [`Cluster::kubectl`].
pub fn log(cluster: &Cluster) -> Result<String> {
    let daemon_set = "daemonset/nvidia-device-plugin-daemonset";
    Ok(cluster.kubectl(["-n", NAMESPACE, "logs", daemon_set])?.stdout)
}

/// Where the kubelet has the plugin's configuration file.
///
/// # Errors
/// If the plugin has no pod.
pub fn config_volume(cluster: &Cluster) -> Result<PathBuf> {
    let pods = cluster.json(["get", "pods", "-n", NAMESPACE, "-l", SELECTOR])?;
    let uid = pods["items"][0]["metadata"]["uid"].as_str().context("no plugin pod")?;
    Ok(format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~configmap/config").into())
}

/// The configuration file of the plugin, which is empty again when this is dropped.
#[derive(Debug)]
pub struct Configured<'a>(&'a Cluster);

impl<'a> Configured<'a> {
    /// Gives the plugin this configuration file; it is there within a second or two.
    ///
    /// # Errors
    /// See [`Cluster::kubectl`].
    pub fn new(cluster: &'a Cluster, text: &str) -> Result<Self> {
        let configured = Self(cluster);
        configured.set(text)?;
        Ok(configured)
    }

    /// Replaces it.
    ///
    /// # Errors
    /// See [`Cluster::kubectl`].
    pub fn set(&self, text: &str) -> Result<()> {
        let config = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "nvidia-device-plugin-config", "namespace": NAMESPACE },
            "data": { "config.yaml": text },
        });
        self.0.apply(&config)?;
        // The kubelet brings a pod's volumes up to date when it looks at the pod: at the latest a minute later, or now.
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
        let annotation = format!("e2e/looked-at={now}");
        let annotate = [
            "-n",
            NAMESPACE,
            "annotate",
            "--overwrite",
            "pods",
            "-l",
            SELECTOR,
            &annotation,
        ];
        self.0.kubectl(annotate).map(drop)
    }
}

impl Drop for Configured<'_> {
    fn drop(&mut self) {
        // A node that is left otherwise fails the test that finds other resources than it expects.
        let _ = self.set("version: v1");
    }
}
