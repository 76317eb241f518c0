//! `gpu-mig-manager` on a simulated node, in front of an API server double.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use gpu_sim::{Load, Node, NodeSpec};
use serde_json::{Value, json};
use tempfile::TempDir;

mod api;
mod host;
mod killed;
mod users;

use api::{Api, State};

const LIMIT: Duration = Duration::from_mins(1);
const CLIENT: &str = "nvidia.com/gpu.deploy.client";
const PAUSE: &str = "paused-for-mig-change";

const CONFIG: &str = "version: v1
mig-configs:
  all-1g.10gb:
  - { devices: all, mig-enabled: true, mig-devices: { 1g.10gb: 7 } }
  halves:
  - { devices: all, mig-enabled: true, mig-devices: { 3g.40gb: 2 } }
  half:
  - { devices: [0], mig-enabled: true, mig-devices: { 3g.40gb: 1 } }
  whole:
  - { devices: [0], mig-enabled: true, mig-devices: { 7g.80gb: 1 } }
  off:
  - { devices: all, mig-enabled: false }
  wrong:
  - { devices: all, mig-enabled: true, mig-devices: { 1g.10gb: 4, 2g.20gb: 1, 3g.40gb: 1 } }
";

/// Whether the program runs again, and nothing is left of the pause.
fn is_resumed(now: &State) -> bool {
    now.labels[CLIENT] == "true" && !now.annotations.contains_key("nvidia.com/mig.pause-lease")
}

/// A node of two H100 with MIG mode on, a program that uses GPUs on it, and the API server.
struct Bench {
    folder: TempDir,
    node: Node,
    api: Api,
}

impl Bench {
    fn new() -> Self {
        let bench = Self::of("h100", 2);
        for gpu in 0..2 {
            assert!(bench.node.set_mig_mode(gpu, true).expect("it has MIG"));
        }
        bench
    }

    fn of(profile: &str, gpus: usize) -> Self {
        let folder = TempDir::new().expect("a folder");
        let node = Node::create(&NodeSpec::new(profile).gpus(gpus), folder.path().join("node")).expect("a node");
        fs::create_dir_all(folder.path().join("host/run")).expect("a folder");
        fs::write(folder.path().join("config.yaml"), CONFIG).expect("a file");
        let api = Api::start();
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{ "name": "x", "cluster": { "server": format!("http://127.0.0.1:{}", api.port) } }],
            "users": [{ "name": "x", "user": {} }],
            "contexts": [{ "name": "x", "context": { "cluster": "x", "user": "x" } }],
        });
        fs::write(folder.path().join("kubeconfig"), kubeconfig.to_string()).expect("a file");
        api.change(|state| {
            state.labels.insert(CLIENT.to_owned(), json!("true"));
            state.pods.push(pod("client", &json!({ CLIENT: "true" }), "DaemonSet"));
        });
        Self { folder, node, api }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, arguments: &[&str]) -> Manager {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-mig-manager"));
        command
            .env_clear()
            .envs([("NODE_NAME", "n"), ("POD_NAME", "manager-1")])
            .env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()))
            .env("KUBECONFIG", self.path("kubeconfig"))
            .env("CONFIG_FILE", self.path("config.yaml"))
            .env("HOST_ROOT_MOUNT", self.path("host"))
            .env("DRIVER_ROOT_CTR_PATH", self.path("driver"))
            .env("GPU_NVML_LIBRARY", self.node.library())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Manager(command.spawn().expect("it starts"))
    }

    fn ask(&self, config: &str) {
        self.api
            .change(|state| drop(state.labels.insert("nvidia.com/mig.config".to_owned(), json!(config))));
    }

    fn ask_nothing(&self) {
        self.api
            .change(|state| drop(state.labels.remove("nvidia.com/mig.config")));
    }

    /// A manager that is to halve a GPU that is one instance, and waits for a program that does not go.
    #[track_caller]
    fn start_paused(&self, arguments: &[&str]) -> Manager {
        self.node.create_mig(0, "7g.80gb", None).expect("there is room");
        self.api.change(|state| state.stubborn = true);
        self.ask("halves");
        let manager = self.start(arguments);
        self.pauses();
        manager
    }

    #[track_caller]
    fn wait(&self, what: &str, is: impl Fn(&State) -> bool) {
        let start = Instant::now();
        while !is(&self.api.state()) {
            assert!(start.elapsed() < LIMIT, "not {what}: {:?}", self.api.state());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the node says what became of a value, and checks that nobody waits then.
    #[track_caller]
    fn ends(&self, state: &str, config: &str) {
        self.wait(&format!("`{config}` {state}"), |now| {
            now.labels.get("nvidia.com/mig.config.state") == Some(&json!(state))
                && now.annotations.get("nvidia.com/mig.config.state-value") == Some(&json!(config))
        });
        self.nobody_waits();
    }

    #[track_caller]
    fn nobody_waits(&self) {
        let now = self.api.state();
        assert!(is_resumed(&now), "{:?} {:?}", now.labels, now.annotations);
    }

    #[track_caller]
    fn resumes(&self) {
        self.wait("resumed", is_resumed);
    }

    #[track_caller]
    fn pauses(&self) {
        self.wait("paused", |now| now.labels.get(CLIENT) == Some(&json!(PAUSE)));
    }

    fn pauses_so_far(&self) -> usize {
        let patches = &self.api.state().patches;
        patches.iter().filter(|patch| patch["labels"][CLIENT] == PAUSE).count()
    }

    fn reason(&self) -> String {
        let now = self.api.state();
        now.annotations
            .get("nvidia.com/mig.config.state-reason")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    }

    fn devices(&self) -> Vec<String> {
        let gpus = 0..self.node.gpus().len();
        let all = gpus.flat_map(|gpu| self.node.mig(gpu).expect("the state"));
        all.flat_map(|mig| mig.devices).map(|(_, _, uuid)| uuid).collect()
    }

    /// Makes a pod use an instance of GPU 0.
    fn use_instance(&self, name: &str) {
        self.api
            .change(|state| state.pods.push(pod(name, &json!({}), "ReplicaSet")));
        self.runs(0, 4242, "3fb9bd86-c3d7-4c1d-9d0c-0d6a5a3f1f11");
    }

    /// Lets a process of a pod run on an instance of GPU 0, by its place in the list.
    fn runs(&self, instance: usize, pid: u32, uid: &str) {
        let used = self.node.mig(0).expect("the state")[instance].id;
        let load = Load {
            instance: Some((used, 0)),
            pid: Some(pid),
            ..Load::default()
        };
        self.node.load(0, load).expect("it runs");
        let process = self.path("host/proc").join(pid.to_string());
        fs::create_dir_all(&process).expect("a folder");
        fs::write(process.join("comm"), "train\n").expect("a file");
        let group = format!(
            "0::/kubepods.slice/kubepods-pod{}.slice/cri-containerd-{}.scope\n",
            uid.replace('-', "_"),
            "3d".repeat(32)
        );
        fs::write(process.join("cgroup"), group).expect("a file");
    }
}

fn pod(name: &str, selector: &Value, owner: &str) -> Value {
    let uid = if owner == "DaemonSet" {
        "d"
    } else {
        "3fb9bd86-c3d7-4c1d-9d0c-0d6a5a3f1f11"
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "apps", "uid": uid,
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": owner, "name": name, "uid": "o" }],
        },
        "spec": { "nodeSelector": selector, "containers": [] },
    })
}

/// The program; killed where a test fails.
struct Manager(Child);

impl Manager {
    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.0.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "kill works");
    }

    /// Ends it by SIGTERM, within two seconds and with success.
    fn end(mut self) {
        self.signal("-TERM");
        let start = Instant::now();
        while self.0.try_wait().expect("it can be waited for").is_none() {
            assert!(start.elapsed() < Duration::from_secs(2), "it does not end");
            thread::sleep(Duration::from_millis(10));
        }
        assert!(self.0.wait().expect("it has ended").success());
    }

    fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it has ended");
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // It has ended unless a test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_request_that_only_adds_instances_disturbs_nobody() {
    let bench = Bench::new();
    bench.node.create_mig(0, "1g.10gb", Some(3)).unwrap();
    let before = bench.devices();
    bench.ask("all-1g.10gb");
    let manager = bench.start(&[]);
    bench.ends("success", "all-1g.10gb");
    assert_eq!(bench.devices().len(), 14);
    assert!(bench.devices().contains(&before[0]));
    assert_eq!(bench.pauses_so_far(), 0);
    assert_eq!(bench.api.state().pods.len(), 1);
    manager.end();
    let owners = fs::read_to_string(bench.path("host/run/nvidia-gpu-owners.json")).unwrap();
    assert_eq!(owners, r#"{"version":1,"owners":{}}"#);
}

#[test]
fn who_uses_gpus_waits_while_instances_go_and_all_is_said_in_one_patch() {
    let bench = Bench::new();
    bench.node.create_mig(0, "7g.80gb", None).unwrap();
    bench.ask("halves");
    let _manager = bench.start(&[]);
    bench.ends("success", "halves");
    assert_eq!(bench.devices().len(), 4);
    assert!(bench.api.state().pods.is_empty(), "it was gone before the change");
    let patches = bench.api.state().patches.clone();
    assert_eq!(patches.len(), 2, "{patches:?}");
    assert_eq!(patches[0]["labels"][CLIENT], PAUSE);
    assert_eq!(patches[0]["labels"]["nvidia.com/mig.config.state"], "pending");
    let lease: Value = serde_json::from_str(
        patches[0]["annotations"]["nvidia.com/mig.pause-lease"]
            .as_str()
            .unwrap(),
    )
    .unwrap();
    assert_eq!(
        (lease["owner"].as_str(), lease["paused"][CLIENT].as_str()),
        (Some("manager-1"), Some("true"))
    );
    assert_eq!(patches[1]["labels"][CLIENT], "true");
    assert_eq!(patches[1]["labels"]["nvidia.com/mig.config.state"], "success");
}

#[test]
fn what_cannot_be_fails_at_once_and_an_edit_of_the_file_mends_it() {
    let bench = Bench::new();
    bench.ask("wrong");
    let _manager = bench.start(&[]);
    bench.ends("failed", "wrong");
    assert!(
        bench
            .reason()
            .starts_with("GPU 0: 2 of 4 × `1g.10gb` do not fit beside"),
        "{}",
        bench.reason()
    );
    assert_eq!((bench.pauses_so_far(), bench.devices().len()), (0, 0));
    fs::write(bench.path("config.yaml"), CONFIG.replace("1g.10gb: 4", "1g.10gb: 2")).unwrap();
    bench.ends("success", "wrong");
    assert_eq!(bench.devices().len(), 8);
    assert_eq!(bench.reason(), "");
    fs::write(bench.path("config.yaml"), "version: v1\nmig-configs: {").unwrap();
    bench.ends("failed", "wrong");
    bench.ask("no-such");
    bench.ends("failed", "no-such");
    assert_eq!((bench.pauses_so_far(), bench.devices().len()), (0, 8));
}

#[test]
fn a_manager_that_was_killed_while_others_wait_is_repaired_by_its_next_start() {
    let bench = Bench::new();
    let manager = bench.start_paused(&[]);
    manager.kill();
    assert_eq!(bench.devices().len(), 1);
    let manager = bench.start(&[]);
    bench.api.change(|state| state.stubborn = false);
    bench.ends("success", "halves");
    assert_eq!(bench.devices().len(), 4);
    manager.end();

    // Killed with a value that is no longer there.
    bench.api.change(|state| state.stubborn = true);
    bench
        .api
        .change(|state| state.pods.push(pod("client", &json!({ CLIENT: "true" }), "DaemonSet")));
    bench.ask("all-1g.10gb");
    let manager = bench.start(&[]);
    bench.pauses();
    manager.kill();
    bench.ask_nothing();
    let _manager = bench.start(&[]);
    bench.resumes();
}

#[test]
fn pods_that_do_not_go_end_in_failure_and_nobody_waits_for_ever() {
    let bench = Bench::new();
    bench.node.create_mig(0, "7g.80gb", None).unwrap();
    bench.api.change(|state| state.stubborn = true);
    bench.ask("halves");
    let _manager = bench.start(&["--pause-seconds", "1"]);
    bench.ends("failed", "halves");
    assert_eq!(bench.reason(), "these pods are not gone after 1 s: apps/client");
    assert_eq!(bench.devices().len(), 1);
    // It is tried again by itself, and nobody waits again while that pod stands there.
    let requests = bench.api.state().requests;
    bench.wait("tried again", |state| state.requests > requests + 2);
    bench.ends("failed", "halves");
    assert_eq!(bench.pauses_so_far(), 1);
    bench.api.change(|state| {
        state.stubborn = false;
        state.pods.clear();
    });
    bench.ends("success", "halves");
    assert_eq!(bench.pauses_so_far(), 2);
}

#[test]
fn a_gpu_that_is_lost_fails_the_node_until_it_is_back() {
    let bench = Bench::new();
    bench.node.lose(1).unwrap();
    bench.ask("all-1g.10gb");
    let _manager = bench.start(&[]);
    bench.ends("failed", "all-1g.10gb");
    assert!(bench.reason().contains("GPU 1 is lost"), "{}", bench.reason());
    assert_eq!((bench.pauses_so_far(), bench.devices().len()), (0, 0));
    bench.node.restore(1).unwrap();
    bench.ends("success", "all-1g.10gb");
    assert_eq!(bench.devices().len(), 14);
}

#[test]
fn a_value_that_is_seen_by_reading_alone_is_applied_and_the_old_one_is_left() {
    let bench = Bench::new();
    bench.api.change(|state| state.blind = true);
    let _manager = bench.start_paused(&[]);
    bench.ask("all-1g.10gb");
    bench.api.change(|state| state.stubborn = false);
    bench.ends("success", "all-1g.10gb");
    assert_eq!(bench.devices().len(), 14);
}

#[test]
fn a_lease_of_a_manager_that_is_gone_ends_before_anything_else() {
    let bench = Bench::new();
    bench.api.change(|state| {
        state.labels.insert(CLIENT.to_owned(), json!(PAUSE));
        let lease = json!({ "owner": "manager-0", "deadline": 9_999_999_999_u64, "paused": { CLIENT: "true" } });
        let lease = json!(lease.to_string());
        state.annotations.insert("nvidia.com/mig.pause-lease".to_owned(), lease);
    });
    bench.ask("halves");
    let _manager = bench.start(&[]);
    bench.ends("success", "halves");
    let first = bench.api.state().patches[0].clone();
    assert_eq!(first["labels"], json!({ CLIENT: "true" }));
    assert_eq!(first["annotations"], json!({ "nvidia.com/mig.pause-lease": null }));
}

#[test]
fn a_signal_while_others_wait_lets_them_go_on() {
    let bench = Bench::new();
    let manager = bench.start_paused(&[]);
    manager.end();
    bench.nobody_waits();
    let owners = fs::read_to_string(bench.path("host/run/nvidia-gpu-owners.json")).unwrap();
    assert_eq!(owners, r#"{"version":1,"owners":{}}"#);
}

#[test]
fn a_value_that_was_superseded_is_not_reported_as_the_nodes_state() {
    let bench = Bench::new();
    let _manager = bench.start_paused(&[]);
    bench.ask("all-1g.10gb");
    bench.api.change(|state| state.stubborn = false);
    bench.ends("success", "all-1g.10gb");
    assert_eq!(bench.devices().len(), 14);
    for patch in &bench.api.state().patches {
        let of_old = patch["annotations"]["nvidia.com/mig.config.state-value"] == "halves";
        let done = patch["labels"]["nvidia.com/mig.config.state"] == "success";
        assert!(!(of_old && done), "{patch}");
    }
}

#[test]
fn a_driver_that_does_not_end_keeps_nobody_waiting() {
    let bench = Bench::new();
    let _manager = bench.start_paused(&["--change-seconds", "1"]);
    bench.node.slow(0, Duration::from_secs(2)).unwrap();
    bench.api.change(|state| state.stubborn = false);
    bench.ends("failed", "halves");
    assert_eq!(bench.reason(), "the driver has not made the change within 1 s");
    bench.node.slow(0, Duration::ZERO).unwrap();
    bench.ends("success", "halves");
    assert_eq!(bench.devices().len(), 4);
}

#[test]
fn an_edit_of_the_file_in_the_middle_of_a_change_is_applied_after_it() {
    let bench = Bench::new();
    let _manager = bench.start_paused(&[]);
    fs::write(bench.path("config.yaml"), CONFIG.replace("3g.40gb: 2", "3g.40gb: 1")).unwrap();
    bench.api.change(|state| state.stubborn = false);
    bench.wait("edited", |_| bench.devices().len() == 2);
    bench.ends("success", "halves");
}

#[test]
fn a_file_that_cannot_be_read_is_named_until_it_can() {
    let bench = Bench::new();
    let file = bench.path("config.yaml");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    bench.ask("halves");
    let _manager = bench.start(&[]);
    bench.ends("failed", "halves");
    assert!(
        bench.reason().starts_with(&format!("cannot read `{}`", file.display())),
        "{}",
        bench.reason()
    );
    fs::remove_dir(&file).unwrap();
    fs::write(&file, b"version: v1\n\xff").unwrap();
    bench.wait("read again", |now| {
        let reason = now.annotations.get("nvidia.com/mig.config.state-reason");
        let reason = reason.and_then(Value::as_str);
        reason.is_some_and(|reason| !reason.contains("directory"))
    });
    bench.ends("failed", "halves");
    fs::write(&file, CONFIG).unwrap();
    bench.ends("success", "halves");
    assert_eq!((bench.pauses_so_far(), bench.devices().len()), (0, 4));
}

#[test]
fn a_second_manager_waits_for_the_first_to_end() {
    let bench = Bench::new();
    let first = bench.start(&[]);
    bench.wait("followed", |state| state.requests > 1);
    let second = bench.start(&[]);
    first.signal("-STOP");
    bench.ask("halves");
    thread::sleep(Duration::from_millis(1500)); // as long as a second one would take if it did not wait
    assert!(!bench.api.state().labels.contains_key("nvidia.com/mig.config.state"));
    first.signal("-CONT");
    bench.ends("success", "halves");
    first.kill();
    bench.ask("wrong");
    bench.ends("failed", "wrong");
    second.end();
}

#[test]
fn an_api_server_that_fails_in_the_middle_lets_nobody_wait_for_ever() {
    let bench = Bench::new();
    let manager = bench.start_paused(&[]);
    bench.api.change(|state| {
        state.failures = 7; // one more than a request and the report of its failure outlast
        state.stubborn = false;
    });
    bench.ends("success", "halves");
    assert_eq!(bench.devices().len(), 4);
    manager.end();
}

#[test]
fn an_api_server_that_fails_for_a_while_is_asked_again() {
    let bench = Bench::new();
    bench.api.change(|state| state.failures = 3);
    bench.ask("halves");
    let manager = bench.start(&[]);
    bench.ends("success", "halves");
    manager.end();
}
