//! What one run of `gpu-feature-discovery --oneshot` costs, on a simulated node with 8 H100 and 32 MIG devices: time and peak of
//! resident memory.
//!
//! `cargo build --release -p gpu-examples --no-default-features --features feature-discovery --bin gpu-feature-discovery`, then
//! `cargo bench -p gpu-benches --bench labels_one_shot`. The program is the one beside this bench, or the one that
//! `GPU_FEATURE_DISCOVERY` names. The references in the same run: the program's own `--version`, which is its
//! start alone, and with `GPU_REFERENCE` another program that takes the same arguments, such as the vendor's.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::{
    env, fs,
    io::{self, PipeReader, PipeWriter, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use gpu_benches::{divided, program};
use gpu_sim::Node;

const PROFILES: [&str; 4] = ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"];
const RUNS: usize = 21;

fn main() {
    let own = program("GPU_FEATURE_DISCOVERY", "gpu-feature-discovery");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = divided(&folder.path().join("node"), &PROFILES).expect("a divided node");
    let one_shot = [
        "--oneshot",
        "--use-node-feature-api=false",
        "--mig-strategy=mixed",
        "--no-timestamp",
        "--output-file=",
    ];
    let mut programs = vec![
        ("one-shot", own.clone(), &one_shot[..]),
        ("its --version", own, &["--version"]),
    ];
    if let Some(reference) = env::var_os("GPU_REFERENCE") {
        programs.push(("reference, one-shot", reference.into(), &one_shot));
    }
    for (what, program, arguments) in programs {
        assert!(program.exists(), "there is no `{}`: build it first", program.display());
        let mut times: Vec<_> = (0..RUNS).map(|_| time(&program, &node, arguments)).collect();
        times.sort_unstable();
        let peak = peak(&program, &node, arguments);
        println!("{what}: `{}`", program.display());
        println!("  wall: least {:?}, median {:?} of {RUNS}", times[0], times[RUNS / 2]);
        println!("  peak: {}", peak.join(", "));
    }
}

fn command(program: &Path, node: &Node, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(node.env())
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command
}

fn time(program: &Path, node: &Node, arguments: &[&str]) -> Duration {
    let started = Instant::now();
    let output = command(program, node, arguments).output().expect("the program starts");
    let took = started.elapsed();
    assert!(output.status.success() && !output.stdout.is_empty());
    took
}

/// The memory of a program at its last step, which is to print: into a pipe that is full, so that it stays to be looked at.
fn peak(program: &Path, node: &Node, arguments: &[&str]) -> Vec<String> {
    let (reader, writer) = io::pipe().expect("a pipe");
    let filled = fill(&writer);
    let mut child = command(program, node, arguments)
        .stdout(writer)
        .spawn()
        .expect("the program starts");
    let started = Instant::now();
    while !waits_to_print(&child) {
        assert!(started.elapsed() < Duration::from_secs(30), "it does not print");
        thread::sleep(Duration::from_millis(5));
    }
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("its status");
    drain(reader, filled);
    assert!(child.wait().expect("it ends").success());
    let wanted = ["VmHWM", "RssAnon", "RssFile"];
    let lines = status
        .lines()
        .filter(|line| wanted.iter().any(|key| line.starts_with(key)));
    lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// Fills a pipe; with how many bytes.
fn fill(writer: &PipeWriter) -> usize {
    const SIZE: usize = 64 << 10; // Linux's for every new pipe
    let mut writer = writer;
    writer.write_all(&vec![b'\n'; SIZE]).expect("a pipe has room for them");
    SIZE
}

fn drain(mut reader: PipeReader, filled: usize) {
    let mut all = Vec::new();
    reader.read_to_end(&mut all).expect("a pipe can be read");
    assert!(all.len() > filled, "it printed something");
}

/// Whether any of its threads is in `write(1, …)`.
fn waits_to_print(child: &Child) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", child.id())).expect("it runs");
    threads.flatten().any(|thread| {
        let call = fs::read_to_string(thread.path().join("syscall")).unwrap_or_default();
        call.starts_with("1 0x1 ")
    })
}
