//! MIG modes that change with a reset: two A100 passed through, and a driver's tool that does what a test wants.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use gpu_sim::{Node, NodeSpec};
use tempfile::TempDir;

use super::{
    super::{LONG, Running, program, stderr},
    Bench, succeeds,
};

/// In the place of `chroot`, which only root may call.
const CHROOT: &str = "#!/bin/sh\nshift\nexec \"$@\"\n";

/// The driver's tool: it says that it cannot, or waits until the test has reset the GPUs.
const NVIDIA_SMI: &str = r#"#!/bin/sh
echo "$@" >> "$HERE/calls"
[ ! -e "$HERE/refuses" ] || { echo "GPU is in use by another client"; exit 255; }
touch "$HERE/resetting"
while [ -e "$HERE/resetting" ]; do sleep 0.01; done
"#;

const OFF: &str = "{ devices: all, mig-enabled: false }";
const SEVEN: &str = "{ devices: all, mig-enabled: true, mig-devices: { 1g.5gb: 7 } }";

struct PassedThrough(Bench);

impl PassedThrough {
    fn new() -> Self {
        let dir = TempDir::new().expect("a folder");
        let folder = dir.path().join("node");
        Node::create(&NodeSpec::new("a100").gpus(2), &folder).expect("a node");
        let file = folder.join("node.yaml");
        let text = fs::read_to_string(&file).expect("its file");
        fs::write(&file, text.replace("virtualization: 0", "virtualization: 1")).expect("it is ours");
        let node = Node::open(&folder).expect("the node");
        let bench = Self(Bench { dir, node });
        for (name, text) in [("chroot", CHROOT), ("nvidia-smi", NVIDIA_SMI)] {
            let path = bench.path("bin").join(name);
            fs::create_dir_all(bench.path("bin")).expect("a folder");
            fs::write(&path, text).expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        bench
    }

    /// The same with MIG mode on and instances that nobody uses.
    fn divided() -> Self {
        let bench = Self::new();
        for gpu in 0..2 {
            assert!(!bench.0.node.set_mig_mode(gpu, true).expect("it has MIG"));
            bench.0.node.reset(gpu).expect("nobody uses it");
            for profile in ["3g.20gb", "2g.10gb", "1g.5gb"] {
                bench.0.node.create_mig(gpu, profile, None).expect("it fits");
            }
        }
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.dir.path().join(name)
    }

    fn command(&self, entry: &str, flags: &[&str]) -> Command {
        let config = self.0.config(entry);
        let mut command = program(env!("CARGO_BIN_EXE_gpuctl"));
        command
            .args(["mig", "apply", "-f"])
            .arg(config)
            .args(flags)
            .envs(self.0.node.env())
            .env("HERE", self.0.dir.path())
            .env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()));
        command
    }

    /// Starts it, and does something once the tool is asked for a reset; then the tool goes on.
    fn reset_by(&self, entry: &str, reset: impl Fn()) -> Output {
        let running = Running::start(&mut self.command(entry, &[]));
        until("resetting", || self.path("resetting").exists());
        reset();
        fs::remove_file(self.path("resetting")).expect("it waits");
        running.end(LONG)
    }

    fn modes(&self) -> [(bool, bool); 2] {
        [0, 1].map(|gpu| self.0.node.mig_mode(gpu).expect("the state"))
    }

    fn layouts(&self) -> [Vec<String>; 2] {
        [0, 1].map(|gpu| self.0.layout(gpu))
    }
}

#[track_caller]
fn until(what: &str, is: impl Fn() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < LONG, "not {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn fails(output: &Output, expected: &str) {
    assert_eq!(output.status.code(), Some(1), "{}", stderr(output));
    assert!(stderr(output).contains(expected), "{}", stderr(output));
}

const ON: [(bool, bool); 2] = [(true, true); 2];
const NOT_ON: [(bool, bool); 2] = [(false, false); 2];

#[test]
fn a_mode_that_waits_is_taken_back_where_another_gpu_is_lost_before_the_reset() {
    let bench = PassedThrough::new();
    for gpu in 0..2 {
        bench.0.node.slow(gpu, Duration::from_millis(50)).unwrap();
    }
    let running = Running::start(&mut bench.command(SEVEN, &[]));
    until("noted", || bench.0.node.mig_mode(0).unwrap() == (false, true));
    bench.0.node.lose(1).unwrap();
    let output = running.end(LONG);
    // At which of its calls GPU 1 was lost is open; GPU 0 is as it was in any case.
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("GPU 1"), "{}", stderr(&output));
    assert_eq!(bench.0.node.mig_mode(0).unwrap(), (false, false), "{}", stderr(&output));
    assert!(!bench.path("calls").exists(), "nothing was reset");
}

#[test]
fn instances_that_went_before_a_reset_that_fails_are_made_again() {
    let bench = PassedThrough::divided();
    let before = bench.layouts();
    fs::write(bench.path("refuses"), "").unwrap();
    let output = Running::start(&mut bench.command(OFF, &[])).end(LONG);
    fails(
        &output,
        "GPU is in use by another client; what was done before was taken back\n",
    );
    assert_eq!((bench.modes(), bench.layouts()), (ON, before));
}

#[test]
fn a_reset_that_is_skipped_with_instances_to_make_changes_nothing() {
    let bench = PassedThrough::divided();
    let before = [bench.0.uuids(0), bench.0.uuids(1)];
    let output = Running::start(&mut bench.command(OFF, &["--skip-reset"])).end(LONG);
    fails(
        &output,
        "error: MIG mode of GPU 0, 1 changes with a reset, which is skipped: nothing was changed\n",
    );
    assert_eq!((bench.modes(), [bench.0.uuids(0), bench.0.uuids(1)]), (ON, before));
}

#[test]
fn what_fails_after_the_reset_is_taken_back_by_another() {
    let bench = PassedThrough::new();
    let running = Running::start(&mut bench.command(SEVEN, &[]));
    let reset = |gpus: &[usize]| {
        until("resetting", || bench.path("resetting").exists());
        for &gpu in gpus {
            bench.0.node.reset(gpu).unwrap();
        }
        fs::remove_file(bench.path("resetting")).unwrap();
    };
    // The tool says that it has reset both, and one is not.
    reset(&[0]);
    reset(&[0]);
    let output = running.end(LONG);
    fails(
        &output,
        "error: after the reset, GPU 1: MIG mode is to be on and is off until a reset; what was done before was taken back\n",
    );
    assert_eq!(bench.modes(), NOT_ON);
    let calls = fs::read_to_string(bench.path("calls")).unwrap();
    let addresses: Vec<_> = calls.lines().map(|call| call.matches(':').count()).collect();
    assert_eq!(addresses, [4, 2], "{calls}");
}

#[test]
fn what_cannot_be_taken_back_is_named() {
    let bench = PassedThrough::divided();
    let output = bench.reset_by(OFF, || {
        bench.0.node.reset(0).unwrap();
        bench.0.node.lose(1).unwrap();
        fs::write(bench.path("refuses"), "").unwrap();
    });
    fails(&output, "not taken back: MIG mode of GPU 1 (");
    fails(&output, "; MIG mode of GPU 0 (");
    fails(&output, "; the instances of GPU 1 (");
}

#[test]
fn the_driver_library_is_let_go_before_a_reset() {
    let bench = PassedThrough::new();
    bench.0.node.log_calls(true).unwrap();
    let output = bench.reset_by(SEVEN, || {
        let calls = bench.0.node.calls().unwrap();
        let last = calls.last().expect("calls");
        assert_eq!(last.function, "nvmlShutdown", "{last:?}");
        for gpu in 0..2 {
            bench.0.node.reset(gpu).unwrap();
        }
    });
    succeeds(&output);
    assert_eq!(bench.layouts().map(|layout| layout.len()), [7, 7]);
}
