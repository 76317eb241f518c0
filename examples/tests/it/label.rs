//! The device plugin with several configuration files, of which the node's label names one.

use std::{
    fs,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use gpu_kubelet::double::{Config, Kubelet};
use gpu_sim::{Node, NodeSpec};
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use super::{
    LONG, Running,
    device_plugin::{PROMPT, free_port, probe, until},
    help, program, run, stderr, stdout,
};

#[path = "../mig_manager/api.rs"]
mod api;

use api::Api;

const GPU: &str = "nvidia.com/gpu";
const LABEL: &str = "nvidia.com/device-plugin.config";

fn kubeconfig(api: &Api) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": format!("http://127.0.0.1:{}", api.port) } }],
        "users": [{ "name": "c", "user": {} }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "c" } }],
    })
    .to_string()
}

fn sharing(replicas: u32) -> String {
    format!("sharing: {{ timeSlicing: {{ resources: [{{ name: gpu, replicas: {replicas} }}] }} }}")
}

/// A simulated node with 4 GPUs in front of a kubelet and an API server, and a folder of configuration files.
struct Setup {
    folder: TempDir,
    node: Node,
    kubelet: Kubelet,
    api: Api,
}

impl Setup {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let node = Node::create(&NodeSpec::new("h100").gpus(4), folder.path().join("node")).expect("a simulated node");
        let kubelet = Kubelet::start(Config::in_dir(folder.path())).await.expect("it starts");
        let api = Api::start();
        fs::write(folder.path().join("kubeconfig"), kubeconfig(&api)).expect("a file");
        let setup = Self {
            folder,
            node,
            kubelet,
            api,
        };
        fs::create_dir(setup.configs()).expect("a folder");
        for (name, text) in [("default", String::new()), ("two", sharing(2)), ("three", sharing(3))] {
            fs::write(setup.configs().join(name), text).expect("a file");
        }
        setup
    }

    fn configs(&self) -> PathBuf {
        self.folder.path().join("configs")
    }

    fn plugin(&self) -> Command {
        let mut command = program(env!("CARGO_BIN_EXE_gpu-device-plugin"));
        command
            .envs(self.node.env())
            .env("KUBELET_SOCKET", self.kubelet.registration_socket())
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            .env("CONFIG_FILE_SRCDIR", self.configs());
        command
    }

    fn label(&self, name: Option<&str>) {
        self.api.change(|state| match name {
            Some(name) => drop(state.labels.insert(LABEL.to_owned(), json!(name))),
            None => drop(state.labels.remove(LABEL)),
        });
    }

    async fn wait_for(&self, allocatable: usize) {
        let waited = self.kubelet.wait_for_allocatable(GPU, allocatable, LONG).await;
        waited.expect("in time");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_that_the_label_names_is_in_force_without_a_sidecar() {
    let setup = Setup::new().await;
    let output = run(&mut setup.plugin());
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("NODE_NAME"), "{}", stderr(&output));

    setup.label(Some("two"));
    let running = Running::start(setup.plugin().env("NODE_NAME", "n").env("FALLBACK_STRATEGIES", "named"));
    setup.wait_for(8).await;
    setup.label(Some("three"));
    setup.wait_for(12).await;
    // The file in force is edited.
    fs::write(setup.configs().join("three"), sharing(5)).unwrap();
    setup.wait_for(20).await;
    setup.label(None);
    setup.wait_for(4).await;
    assert_eq!(setup.kubelet.registrations(GPU), 1);
    running.signal(Signal::TERM);
    let output = running.end(LONG);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_api_server_is_waited_for_with_open_ears_and_not_for_ever() {
    let setup = Setup::new().await;
    setup.label(Some("two"));
    setup.api.state().failures = u32::MAX;
    let port = free_port();
    let mut command = setup.plugin();
    command
        .env("NODE_NAME", "n")
        .env("GPU_LISTEN", format!("127.0.0.1:{port}"));

    // Without a configuration to fall back on it waits.
    let waiting = Running::start(&mut command);
    until(port, "/healthz", |status, _| status == "200").await;
    let (status, body) = probe(port, "/readyz");
    assert_eq!(status, "503");
    assert!(body.ends_with("the node's label names is not known yet"), "{body}");
    waiting.signal(Signal::HUP);
    until(port, "/healthz", |status, _| status == "200").await;
    waiting.signal(Signal::TERM);
    let sent = Instant::now();
    let output = waiting.end(LONG);
    assert!(sent.elapsed() < PROMPT, "{:?}", sent.elapsed());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("no configuration to read again yet"),
        "{}",
        stderr(&output)
    );

    // With one, that is in force after a while, and it is said that it is not the one that is wanted.
    let running = Running::start(command.env("FALLBACK_STRATEGIES", "named"));
    setup.wait_for(4).await;
    let silent = |status: &str, body: &str| status == "503" && body.contains("the API server does not say");
    until(port, "/readyz", silent).await;
    let refused = |refused: u32| {
        move |_: &str, metrics: &str| metrics.contains(&format!("gpu_device_plugin_config_refused{{}} {refused}\n"))
    };
    until(port, "/metrics", refused(1)).await;
    setup.api.state().failures = 0;
    setup.wait_for(8).await;
    until(port, "/readyz", |status, _| status == "200").await;
    until(port, "/metrics", refused(0)).await;

    // A label that names no file is refused as a file that cannot be used is, whatever else is read meanwhile.
    setup.label(Some("no-such"));
    let absent = |status: &str, body: &str| {
        status == "503" && body == "the configuration in force stays: specified config no-such does not exist"
    };
    until(port, "/readyz", absent).await;
    fs::write(setup.configs().join("two"), sharing(3)).unwrap();
    setup.wait_for(12).await;
    until(port, "/readyz", absent).await;
    until(port, "/metrics", refused(1)).await;
    let told = |setup: &Setup| {
        let state = setup.api.state();
        let mut events = state.events.iter();
        events.any(|event| event["reason"] == "GPUConfigRefused" && event["note"].to_string().contains("no-such"))
    };
    for _ in 0..600 {
        if told(&setup) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(told(&setup), "{:?}", setup.api.state().events);
    setup.label(Some("three"));
    until(port, "/readyz", |status, _| status == "200").await;
    running.signal(Signal::TERM);
    assert_eq!(running.end(LONG).status.code(), Some(0));
}

/// The flags by which the file is chosen, each with what it changes.
pub(super) async fn flags_of_the_choice() -> Vec<&'static str> {
    let setup = Setup::new().await;
    setup.api.change(|state| {
        state.labels.insert("example.com/which".to_owned(), json!("two"));
    });
    let mut command = program(env!("CARGO_BIN_EXE_gpu-device-plugin"));
    command.envs(setup.node.env()).args([
        format!("--kubelet-socket={}", setup.kubelet.registration_socket().display()),
        format!("--kubeconfig={}", setup.folder.path().join("kubeconfig").display()),
        format!("--config-file-srcdir={}", setup.configs().display()),
        "--node-name=n".to_owned(),
        "--node-label=example.com/which".to_owned(),
        "--fallback-strategies=named".to_owned(),
    ]);
    // By the label of that key; without it, by the fallback; and by the default that is before that.
    let running = Running::start(&mut command);
    setup.wait_for(8).await;
    setup.api.change(|state| state.labels.clear());
    setup.wait_for(4).await;
    drop(running);
    let running = Running::start(command.arg("--default-config=three"));
    setup.wait_for(12).await;
    drop(running);
    vec![
        "kubeconfig",
        "config-file-srcdir",
        "node-name",
        "node-label",
        "fallback-strategies",
        "default-config",
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_flag_of_the_config_manager_changes_what_is_seen_of_it() {
    let setup = Setup::new().await;
    setup.api.change(|state| {
        state.labels.insert("example.com/which".to_owned(), json!("two"));
    });
    let link = setup.folder.path().join("config.yaml");
    let manager = |without: &str, arguments: &[&str]| {
        let usual = [
            ("kubeconfig", setup.folder.path().join("kubeconfig")),
            ("node-name", "n".into()),
            ("node-label", "example.com/which".into()),
            ("config-file-srcdir", setup.configs()),
            ("config-file-dst", link.clone()),
            ("process-to-signal", "a-program-of-this-test".into()),
        ];
        let mut command = program(env!("CARGO_BIN_EXE_gpu-device-plugin"));
        command.arg("config-manager");
        for (name, value) in usual.into_iter().filter(|(name, _)| *name != without) {
            command.arg(format!("--{name}={}", value.display()));
        }
        command.args(arguments);
        command
    };
    let chosen = |name: &str| assert_eq!(fs::read_link(&link).unwrap(), setup.configs().join(name));

    for required in ["node-name", "config-file-srcdir", "config-file-dst"] {
        let output = run(&mut manager(required, &["--oneshot"]));
        assert_eq!(output.status.code(), Some(2));
        assert!(
            stderr(&output).contains(&format!("--{required}")),
            "{}",
            stderr(&output)
        );
    }
    let output = run(&mut manager("kubeconfig", &["--oneshot"]));
    assert!(
        stderr(&output).contains("where the API server is"),
        "{}",
        stderr(&output)
    );
    let output = run(&mut manager("", &["--oneshot"]));
    assert!(
        stderr(&output).contains("no process found that is `a-program-of-this-test`"),
        "{}",
        stderr(&output)
    );

    fs::remove_file(&link).unwrap();
    let mut child = Command::new("/bin/sleep")
        .arg0("a-program-of-this-test")
        .arg("60")
        .spawn()
        .unwrap();
    let output = run(&mut manager("", &["--oneshot", "--signal=10", "--log-format=json"]));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stderr(&output).lines().all(|line| line.starts_with('{')),
        "{}",
        stderr(&output)
    );
    assert_eq!(child.wait().unwrap().signal(), Some(10));
    chosen("two");

    setup.api.change(|state| state.labels.clear());
    let quiet = ["--oneshot", "--send-signal=false", "--fallback-strategies=named"];
    assert_eq!(run(&mut manager("", &quiet)).status.code(), Some(0));
    chosen("default");
    assert_eq!(
        run(manager("", &quiet).arg("--default-config=three")).status.code(),
        Some(0)
    );
    chosen("three");

    // Without `--oneshot` it follows.
    let running = Running::start(&mut manager("", &quiet[1..]));
    setup.api.change(|state| {
        state.labels.insert("example.com/which".to_owned(), json!("two"));
    });
    for _ in 0..600 {
        if fs::read_link(&link).unwrap() == setup.configs().join("two") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    chosen("two");
    // By each signal, and also while the API server is waited for.
    running.signal(Signal::TERM);
    assert_eq!(running.end(LONG).status.code(), Some(0));
    for (arguments, signal) in [(&quiet[..], Signal::INT), (&quiet[1..], Signal::QUIT)] {
        setup.api.state().failures = u32::MAX;
        let running = Running::start(&mut manager("", arguments));
        while setup.api.state().failures == u32::MAX {
            tokio::time::sleep(Duration::from_millis(20)).await; // it has not asked yet
        }
        running.signal(signal);
        let output = running.end(LONG);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }

    let shown = [
        "oneshot",
        "kubeconfig",
        "node-name",
        "node-label",
        "config-file-srcdir",
        "config-file-dst",
        "default-config",
        "fallback-strategies",
        "send-signal",
        "signal",
        "process-to-signal",
        "log-format",
    ];
    let mut command = program(env!("CARGO_BIN_EXE_gpu-device-plugin"));
    let output = run(command.args(["config-manager", "--help"]));
    assert_eq!(help::flags(stdout(&output)), shown.map(str::to_owned).into());
}
