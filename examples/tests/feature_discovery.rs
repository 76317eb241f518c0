//! `gpu-feature-discovery` on a simulated node, with a file for Node Feature Discovery.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use gpu_sim::{Node, NodeSpec};
use tempfile::TempDir;

/// A simulated node with two H100, and what the program is given.
struct Setup {
    folder: TempDir,
    node: Node,
}

impl Setup {
    fn new() -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let spec = NodeSpec::new("h100").gpus(2);
        let node = Node::create(&spec, folder.path().join("node")).expect("a node can be made");
        Self { folder, node }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn output(&self) -> PathBuf {
        self.path("gfd")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-feature-discovery"));
        command
            .env_clear()
            .args(["--use-node-feature-api=false", "--no-timestamp"])
            .arg(format!("--output-file={}", self.output().display()))
            .arg(format!("--nvml-library={}", self.node.library().display()))
            .arg(format!("--host-root={}", self.node.root().display()))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program starts")
    }

    /// The value of a label in the file.
    fn label(&self, key: &str) -> Option<String> {
        label(&self.output(), key)
    }

    #[track_caller]
    fn wait_for(&self, key: &str, value: &str, limit: Duration) {
        let start = Instant::now();
        while self.label(key).as_deref() != Some(value) {
            assert!(
                start.elapsed() < limit,
                "{key} is {:?} and not {value}",
                self.label(key)
            );
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn label(file: &Path, key: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("nvidia.com/{key}=")));
    line.map(ToOwned::to_owned)
}

/// The program as a daemon; killed where a test fails.
struct Daemon(Child);

impl Daemon {
    fn start(command: &mut Command) -> Self {
        Self(command.stderr(Stdio::null()).spawn().expect("the program starts"))
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.0.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "kill works");
    }

    /// Ends it by SIGTERM, within two seconds and with success.
    fn end(mut self) {
        self.signal("-TERM");
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("it can be waited for") {
                return assert!(status.success(), "{status}");
            }
            assert!(start.elapsed() < Duration::from_secs(2), "it does not end");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has ended unless a test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn one_shot_writes_the_file_once() {
    let setup = Setup::new();
    let output = setup.run(&["--oneshot"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(setup.label("gpu.product").as_deref(), Some("NVIDIA-H100-80GB-HBM3"));
    assert_eq!(setup.label("gpu.count").as_deref(), Some("2"));
    assert_eq!(setup.label("gpu.mode").as_deref(), Some("compute"));
    let written = fs::metadata(setup.output())
        .and_then(|metadata| metadata.modified())
        .expect("the file is there");
    assert!(setup.run(&["--oneshot"]).status.success());
    let later = fs::metadata(setup.output())
        .and_then(|metadata| metadata.modified())
        .expect("the file is there");
    assert_eq!(written, later);
}

#[test]
fn without_a_driver_it_fails_and_leaves_the_labels() {
    let setup = Setup::new();
    fs::write(setup.output(), "nvidia.com/gpu.count=9\n").expect("the file can be written");
    let library = "--nvml-library=/nowhere/libnvidia-ml.so.1";
    for arguments in [&["--oneshot", library][..], &[library]] {
        // The last of two flags would be an error: the command is built anew.
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-feature-discovery"));
        command
            .env_clear()
            .args(["--use-node-feature-api=false", "--no-timestamp"]);
        command
            .arg(format!("--output-file={}", setup.output().display()))
            .args(arguments);
        let output = command.output().expect("the program starts");
        assert_eq!(output.status.code(), Some(1));
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(
            message.contains("the GPUs of this node cannot be read: no NVIDIA driver library"),
            "{message}"
        );
        assert_eq!(setup.label("gpu.count").as_deref(), Some("9"));
    }
    // What the vendor's program writes where it may not fail.
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-feature-discovery"));
    command
        .env_clear()
        .args(["--use-node-feature-api=false", "--no-timestamp", "--oneshot", library]);
    command.args(["--fail-on-init-error=false", "--output-file="]);
    command.arg(format!("--host-root={}", setup.node.root().display()));
    let output = command.output().expect("the program starts");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "nvidia.com/vgpu.present=false\n"
    );
}

#[test]
fn labels_follow_the_node_and_stay_when_the_program_ends() {
    let setup = Setup::new();
    let daemon = Daemon::start(&mut setup.command(&["--sleep-interval=1h"]));
    setup.wait_for("gpu.count", "2", LIMIT);
    setup.node.lose(1).expect("a GPU can be lost");
    setup.wait_for("gpu.count", "1", LIMIT);
    assert_eq!(setup.label("gpu.degraded").as_deref(), Some("true"));
    setup.node.restore(1).expect("a GPU can come back");
    setup.wait_for("gpu.count", "2", LIMIT);
    assert_eq!(setup.label("gpu.degraded"), None);
    daemon.end();
    assert_eq!(setup.label("gpu.count").as_deref(), Some("2"));
}

#[test]
fn labels_are_taken_back_only_where_that_is_asked_for() {
    let setup = Setup::new();
    let daemon = Daemon::start(&mut setup.command(&["--remove-on-exit"]));
    setup.wait_for("gpu.count", "2", LIMIT);
    daemon.end();
    assert!(!setup.output().exists());
}

#[test]
fn a_changed_configuration_is_taken_over_and_a_broken_one_is_not() {
    let setup = Setup::new();
    let config = setup.path("config.yaml");
    let write = |text: &str| fs::write(&config, text).expect("the file can be written");
    let shared = |replicas: u32| {
        format!("sharing: {{ timeSlicing: {{ resources: [{{ name: nvidia.com/gpu, replicas: {replicas} }}] }} }}")
    };
    write(&shared(3));
    let argument = format!("--config-file={}", config.display());
    let daemon = Daemon::start(&mut setup.command(&["--sleep-interval=1h", &argument]));
    setup.wait_for("gpu.replicas", "3", LIMIT);
    assert_eq!(
        setup.label("gpu.product").as_deref(),
        Some("NVIDIA-H100-80GB-HBM3-SHARED")
    );
    write("sharing: { timeSlice: {} }");
    thread::sleep(Duration::from_secs(2));
    daemon.signal("-HUP");
    assert_eq!(setup.label("gpu.replicas").as_deref(), Some("3"));
    write(&shared(4));
    setup.wait_for("gpu.replicas", "4", LIMIT);
    daemon.end();
}

#[test]
fn a_folder_that_is_not_there_yet_is_waited_for() {
    let setup = Setup::new();
    let late = setup.path("features.d");
    let file = late.join("gfd");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-feature-discovery"));
    command
        .env_clear()
        .args(["--use-node-feature-api=false", "--sleep-interval=1s"])
        .arg(format!("--output-file={}", file.display()))
        .arg(format!("--nvml-library={}", setup.node.library().display()))
        .arg(format!("--host-root={}", setup.node.root().display()));
    let daemon = Daemon::start(&mut command);
    thread::sleep(Duration::from_millis(1500));
    fs::create_dir(&late).expect("the folder can be made");
    let start = Instant::now();
    while label(&file, "gfd.timestamp").is_none() {
        assert!(start.elapsed() < LIMIT, "there are no labels");
        thread::sleep(Duration::from_millis(50));
    }
    daemon.end();
}
