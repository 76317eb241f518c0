//! `gpu-feature-discovery` as a process, on a simulated node.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use gpu_sim::{Node, NodeSpec};
use tempfile::TempDir;

mod api;
mod api_server;
mod file;
mod health;

/// More than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

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

    /// The program with a file for its labels.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program();
        command
            .arg("--use-node-feature-api=false")
            .arg(format!("--output-file={}", self.output().display()))
            .arg(format!("--nvml-library={}", self.node.library().display()))
            .args(arguments);
        command
    }

    /// The program, which is told neither where its labels go nor where the driver is.
    fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-feature-discovery"));
        command
            .env_clear()
            .arg("--no-timestamp")
            .arg(format!("--host-root={}", self.node.root().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program starts")
    }

    fn start(&self, arguments: &[&str]) -> Daemon {
        Daemon::start(self.command(arguments), self.path("log"))
    }

    /// The value of a label in the file.
    fn label(&self, key: &str) -> Option<String> {
        label(&self.output(), key)
    }

    #[track_caller]
    fn wait_for(&self, key: &str, value: &str) {
        wait_until(key, || self.label(key).as_deref() == Some(value));
    }
}

fn label(file: &Path, key: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("nvidia.com/{key}=")));
    line.map(ToOwned::to_owned)
}

#[track_caller]
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The program as a daemon; killed where a test fails.
struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    fn start(mut command: Command, log: PathBuf) -> Self {
        let file = fs::File::create(&log).expect("a log can be made");
        let child = command.stderr(file).spawn().expect("the program starts");
        Self { child, log }
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status();
        assert!(status.is_ok_and(|status| status.success()), "kill works");
    }

    /// The lines of its log.
    fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.log).expect("the log can be read");
        text.lines().map(ToOwned::to_owned).collect()
    }

    /// How many lines of the log have this in them.
    fn said(&self, words: &str) -> usize {
        self.log().iter().filter(|line| line.contains(words)).count()
    }

    #[track_caller]
    fn wait_to_say(&self, words: &str) {
        wait_until(words, || self.said(words) > 0);
    }

    /// Ends it by SIGTERM, within two seconds and with success.
    #[track_caller]
    fn end(mut self) {
        let status = self.terminate();
        assert!(status.success(), "{status}");
    }

    /// Sends SIGTERM; how it ended, within two seconds.
    #[track_caller]
    fn terminate(&mut self) -> ExitStatus {
        self.signal("-TERM");
        self.ends_within(Duration::from_secs(2))
    }

    /// How it ended, by itself.
    #[track_caller]
    fn wait_for_end(&mut self) -> ExitStatus {
        self.ends_within(LIMIT)
    }

    #[track_caller]
    fn ends_within(&mut self, limit: Duration) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status;
            }
            assert!(start.elapsed() < limit, "it does not end");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has ended unless a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
