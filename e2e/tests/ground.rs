//! The ground under all other tests: the node runs pods, shows their logs, lets commands in, hands on its device
//! nodes, and lets pods reach the API server and each other.

use std::{fs, process::Command, time::Duration};

use anyhow::{Result, ensure};
use gpu_e2e::{Cluster, Image, Layer, pods, wait};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_mins(1);
const BUSYBOX: &str = "localhost/gpu-e2e/busybox:test";

fn pod(name: &str, image: &str, script: &str) -> Value {
    let container = json!({
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
    });
    pods::of_container(name, &container)
}

/// Runs a pod to its end, and returns what it printed.
fn run_to_end(cluster: &Cluster, pod: &Value) -> Result<String> {
    let name = pod["metadata"]["name"].as_str().expect("a test's pod has a name");
    cluster.apply(pod)?;
    cluster.wait_for_phase("default", name, "Succeeded", LIMIT)?;
    let log = cluster.logs("default", name)?;
    cluster.delete("pod", "default", name, LIMIT)?;
    Ok(log)
}

#[test]
fn a_pod_runs_logs_answers_exec_and_goes_away() -> Result<()> {
    let cluster = Cluster::current()?;
    cluster.apply(&pod("ground", BUSYBOX, "echo hello from the pod; exec sleep 600"))?;
    cluster.wait_for_phase("default", "ground", "Running", LIMIT)?;
    wait::until("the pod's log has its line", LIMIT, || {
        Ok((cluster.logs("default", "ground")? == "hello from the pod\n").then_some(()))
    })?;
    let answer = cluster.exec("default", "ground", &["sh", "-c", "echo exec in $HOSTNAME"])?;
    assert_eq!(answer.stdout, "exec in ground\n");
    cluster.delete("pod", "default", "ground", LIMIT)?;
    assert!(
        cluster.kubectl(["get", "pod", "ground"]).is_err(),
        "the pod is still there"
    );
    Ok(())
}

/// Tests make device nodes where a driver would; `/dev` is the node's own, and the machine's stays as it is.
#[test]
fn a_device_node_of_the_node_reaches_a_privileged_pod() -> Result<()> {
    let cluster = Cluster::current()?;
    // No driver is behind major 195 here: opening it says ENXIO where that is allowed, and EPERM where it is not.
    let made = Command::new("mknod")
        .args(["-m", "666", "/dev/e2e0", "c", "195", "0"])
        .status()?;
    ensure!(made.success(), "mknod /dev/e2e0 failed: {made}");
    let mut pod = pod(
        "devices",
        BUSYBOX,
        "exec 2>&1; stat -c %t:%T /dev/e2e0; cat /dev/e2e0 || true",
    );
    pod["spec"]["containers"][0]["securityContext"] = json!({ "privileged": true });
    let log = run_to_end(&cluster, &pod)?;
    fs::remove_file("/dev/e2e0")?;
    assert_eq!(log, "c3:0\ncat: can't open '/dev/e2e0': No such device or address\n");
    Ok(())
}

/// As a Kubernetes client library finds it from inside a pod; kube-proxy does not run here.
#[test]
fn a_pod_reaches_the_api_server_at_its_service_address() -> Result<()> {
    let cluster = Cluster::current()?;
    let script = "test -s /var/run/secrets/kubernetes.io/serviceaccount/token || exit 1
        echo | nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT >/dev/null && echo reached";
    assert_eq!(run_to_end(&cluster, &pod("api", BUSYBOX, script))?, "reached\n");
    Ok(())
}

#[test]
fn one_pod_reaches_another() -> Result<()> {
    let cluster = Cluster::current()?;
    cluster.apply(&pod(
        "server",
        BUSYBOX,
        "mkdir /www && echo served >/www/index.html && httpd -f -p 8080 -h /www",
    ))?;
    cluster.wait_for_phase("default", "server", "Running", LIMIT)?;
    let address = wait::until("the pod has an address", LIMIT, || {
        let pod = cluster.json(["get", "pod", "server"])?;
        Ok(pod["status"]["podIP"].as_str().map(str::to_owned))
    })?;
    let script = format!("for i in $(seq 50); do wget -qO- http://{address}:8080/ && exit; sleep 0.1; done; exit 1");
    assert_eq!(run_to_end(&cluster, &pod("client", BUSYBOX, &script))?, "served\n");
    cluster.delete("pod", "default", "server", LIMIT)
}

/// An image is made of programs of this machine with their libraries, and goes by any name that a manifest uses.
#[test]
fn a_pod_runs_an_image_made_of_this_machines_programs() -> Result<()> {
    let cluster = Cluster::current()?;
    let mut layer = Layer::new();
    layer
        .host_program("/bin/sh", "/bin/sh")?
        .host_program("/bin/cat", "/bin/cat")?;
    layer.file("/etc/e2e", 0o644, "from the image\n")?;
    let tag = "registry.example/vendor/tool:1.2";
    let tags = vec!["localhost/gpu-e2e/tool:test".into(), tag.into()];
    cluster.load(&Image {
        layer,
        tags,
        env: vec!["PATH=/bin".into()],
        ..Image::default()
    })?;
    assert_eq!(
        run_to_end(&cluster, &pod("tool", tag, "cat /etc/e2e"))?,
        "from the image\n"
    );
    Ok(())
}

/// Tests of programs that must live through a kubelet restart stand on this.
#[test]
fn a_pod_lives_through_a_kubelet_restart() -> Result<()> {
    let cluster = Cluster::current()?;
    cluster.apply(&pod("steady", BUSYBOX, "exec sleep 600"))?;
    let before = cluster.wait_for_phase("default", "steady", "Running", LIMIT)?;
    cluster.restart("kubelet")?;
    cluster.wait_for_ready_node(LIMIT)?;
    let after = cluster.wait_for_phase("default", "steady", "Running", LIMIT)?;
    let container = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    assert_eq!(container(&after), container(&before));
    assert_eq!(after["status"]["containerStatuses"][0]["restartCount"], 0);
    cluster.delete("pod", "default", "steady", LIMIT)
}
