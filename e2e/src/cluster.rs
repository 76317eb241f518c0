//! The test cluster, through `kubectl`.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::Write,
    path::Path,
    process::{self, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{Image, wait};

/// A running test cluster.
///
/// Everything goes through `kubectl`, as a user's hands would, so the tests need no Kubernetes client of their own.
#[derive(Clone, Debug)]
pub struct Cluster {
    node: String,
}

/// What a command printed.
#[derive(Clone, Debug)]
pub struct Output {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Cluster {
    /// The cluster in whose node this process runs.
    ///
    /// # Errors
    /// If the process was not started through `e2e/cluster exec` (as `e2e/run` does).
    pub fn current() -> Result<Self> {
        let node = env::var("GPU_E2E_NODE")
            .context("GPU_E2E_NODE is not set: start the tests with `e2e/run`, or inside `e2e/cluster exec`")?;
        Ok(Self { node })
    }

    /// The name of the one node.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Runs `kubectl` with these arguments.
    ///
    /// # Errors
    /// If it cannot be started or fails; the message has its arguments and what it printed on standard error.
    pub fn kubectl<I>(&self, arguments: I) -> Result<Output>
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        run(kubectl().args(arguments), None)
    }

    /// Runs `kubectl ARGUMENTS -o json`.
    ///
    /// # Errors
    /// See [`Cluster::kubectl`]; also if the answer is no JSON.
    pub fn json<I>(&self, arguments: I) -> Result<Value>
    where
        I: IntoIterator,
        I::Item: AsRef<OsStr>,
    {
        let output = run(kubectl().args(arguments).args(["-o", "json"]), None)?;
        serde_json::from_str(&output.stdout).context("kubectl's answer is no JSON")
    }

    /// Runs `kubectl apply` on an object, or on a `List` of them.
    ///
    /// # Errors
    /// See [`Cluster::kubectl`].
    pub fn apply(&self, object: &Value) -> Result<Output> {
        self.apply_text(&object.to_string())
    }

    /// Runs `kubectl apply` on a manifest as people write them, YAML or JSON.
    ///
    /// # Errors
    /// See [`Cluster::kubectl`].
    pub fn apply_text(&self, manifest: &str) -> Result<Output> {
        run(kubectl().args(["apply", "-f", "-"]), Some(manifest))
    }

    /// Deletes an object and waits until it is gone; that it is not there is fine.
    ///
    /// # Errors
    /// If it is still there after `limit`.
    pub fn delete(&self, kind: &str, namespace: &str, name: &str, limit: Duration) -> Result<()> {
        let timeout = format!("--timeout={}s", limit.as_secs().max(1));
        let arguments = [
            "delete",
            kind,
            name,
            "--namespace",
            namespace,
            "--ignore-not-found",
            "--wait",
            &timeout,
        ];
        self.kubectl(arguments).map(drop)
    }

    /// Deletes a DaemonSet of `kube-system` and waits until its pods are gone, for a minute.
    ///
    /// # Errors
    /// If they are still there then, or there is no such set.
    pub fn delete_daemon_set(&self, name: &str) -> Result<()> {
        let set = format!("daemonset/{name}");
        let arguments = [
            "delete",
            &set,
            "-n",
            "kube-system",
            "--cascade=foreground",
            "--timeout=60s",
        ];
        self.kubectl(arguments).map(drop)
    }

    /// Waits for a pod to reach a phase, and returns the pod.
    ///
    /// # Errors
    /// If it does not within `limit`, or ends in another phase; the message says where it stands and why.
    pub fn wait_for_phase(&self, namespace: &str, pod: &str, phase: &str, limit: Duration) -> Result<Value> {
        let what = format!("pod `{namespace}/{pod}` is {phase}");
        let mut ended = None;
        let seen = wait::until(&what, limit, || {
            let object = self.json(["get", "pod", pod, "--namespace", namespace])?;
            let now = object["status"]["phase"].as_str().unwrap_or_default();
            if now == phase {
                return Ok(Some(Some(object)));
            }
            if matches!(now, "Succeeded" | "Failed") {
                ended = Some(now.to_owned());
                return Ok(Some(None));
            }
            bail!("it is {now}: {}", object["status"]);
        })
        .with_context(|| self.events(namespace, pod))?;
        seen.with_context(|| {
            format!(
                "{what}: it ended as {}; {}",
                ended.unwrap_or_default(),
                self.events(namespace, pod)
            )
        })
    }

    /// Runs a command in a pod's first container, without standard input.
    ///
    /// # Errors
    /// If the command fails, and see [`Cluster::kubectl`].
    pub fn exec(&self, namespace: &str, pod: &str, command: &[&str]) -> Result<Output> {
        self.kubectl(["exec", pod, "--namespace", namespace, "--"].iter().chain(command))
    }

    /// What a pod's first container has printed so far.
    ///
    /// # Errors
    /// See [`Cluster::kubectl`].
    pub fn logs(&self, namespace: &str, pod: &str) -> Result<String> {
        Ok(self.kubectl(["logs", pod, "--namespace", namespace])?.stdout)
    }

    /// Restarts a service of the node, as `systemctl restart` would: `kubelet`, `containerd`, `kube-apiserver` …
    ///
    /// # Errors
    /// If there is no such service, or it does not start.
    pub fn restart(&self, service: &str) -> Result<()> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/cluster");
        run(Command::new(script).args(["restart", service]), None).map(drop)
    }

    /// Kills a service of the node; it starts again 2 s later, as systemd has it.
    ///
    /// # Errors
    /// If there is no such service, or its process cannot be killed.
    pub fn kill(&self, service: &str) -> Result<()> {
        let state = env::var_os("GPU_E2E_STATE").context("GPU_E2E_STATE is not set: start the tests with `e2e/run`")?;
        let file = Path::new(&state).join("pids").join(service);
        let pid = fs::read_to_string(&file).with_context(|| format!("cannot read `{}`", file.display()))?;
        let script = format!("kill -s KILL {}", pid.trim());
        run(Command::new("sh").args(["-c", &script]), None).map(drop)
    }

    /// Waits until the node is Ready *and* its kubelet has said so after this call began.
    ///
    /// The condition alone would still be the one from before a restart. The kubelet of this cluster reports every 2 s.
    ///
    /// # Errors
    /// If it is not within `limit`.
    pub fn wait_for_ready_node(&self, limit: Duration) -> Result<()> {
        let before = self.ready_condition()?["lastHeartbeatTime"].clone();
        wait::until("the kubelet reports that the node is Ready", limit, || {
            let now = self.ready_condition()?;
            Ok((now["status"] == "True" && now["lastHeartbeatTime"] != before).then_some(()))
        })
    }

    fn ready_condition(&self) -> Result<Value> {
        let node = self.json(["get", "node", &self.node])?;
        let conditions = node["status"]["conditions"].as_array();
        let ready = conditions.and_then(|all| all.iter().find(|condition| condition["type"] == "Ready"));
        ready.cloned().context("the node has no Ready condition")
    }

    /// Gives the node an image; pods that name one of its tags need `imagePullPolicy: Never` or `IfNotPresent`.
    ///
    /// # Errors
    /// If the image cannot be written, or containerd does not take it.
    pub fn load(&self, image: &Image) -> Result<()> {
        let archive = env::temp_dir().join(format!("gpu-e2e-image-{}.tar", process::id()));
        let loaded = image.save(&archive).and_then(|()| {
            run(
                Command::new("ctr")
                    .args(["--namespace", "k8s.io", "images", "import"])
                    .arg(&archive),
                None,
            )
        });
        // Best effort: what matters is whether the image was loaded.
        let _ = fs::remove_file(&archive);
        loaded.map(drop)
    }

    /// The events about an object, for messages; never fails.
    fn events(&self, namespace: &str, name: &str) -> String {
        let selector = format!("involvedObject.name={name}");
        let columns = "custom-columns=REASON:.reason,MESSAGE:.message";
        let arguments = [
            "get",
            "events",
            "--namespace",
            namespace,
            "--field-selector",
            &selector,
            "-o",
            columns,
        ];
        match self.kubectl(arguments) {
            Ok(output) => format!("its events:\n{}", output.stdout),
            Err(error) => format!("its events could not be read: {error:#}"),
        }
    }
}

/// No call may hang a test run: `timeout` ends it (status 124).
fn kubectl() -> Command {
    let mut command = Command::new("timeout");
    command.args(["120", "kubectl"]);
    command
}

fn run(command: &mut Command, input: Option<&str>) -> Result<Output> {
    let shown = format!("{command:?}");
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut child = command
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {shown}"))?;
    // Written before anything is read: kubectl reads all of a manifest before it prints.
    if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
        pipe.write_all(input.as_bytes())
            .with_context(|| format!("cannot write to {shown}"))?;
    }
    let output = child
        .wait_with_output()
        .with_context(|| format!("cannot read from {shown}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        output.status.success(),
        "{shown} failed ({}): {}",
        output.status,
        stderr.trim()
    );
    Ok(Output { stdout, stderr })
}
