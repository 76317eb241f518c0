//! What one run of `gpuctl cdi generate` takes, on a simulated node with 8 H100 in 7 MIG devices each.
//!
//! `cargo build --release -p gpu-examples --no-default-features --features gpuctl --bin gpuctl`, then, as root, `cargo bench -p
//! gpu-benches --bench cdi_generate`. The program is the one beside this bench, or the one that `GPUCTL` names. The references in
//! the same run: the program's own `--version`, which is its start alone, and with `GPU_REFERENCE` another program that takes the
//! same arguments, such as the vendor's. All of them see the simulated node as their machine (`e2e/vendor/enter`).

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::{
    env,
    ffi::OsString,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use gpu_benches::{GPUS, SEVENTHS, divided, program};

const RUNS: usize = 21;
const INSIDE: &str = "--on-the-node";

fn main() {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    if let [inside, node, rest @ ..] = arguments.as_slice()
        && inside == INSIDE
    {
        return measure(Path::new(node), rest);
    }
    let own = program("GPUCTL", "gpuctl");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = divided(&folder.path().join("node"), &SEVENTHS).expect("a divided node");
    let enter = concat!(env!("CARGO_MANIFEST_DIR"), "/../e2e/vendor/enter");
    let folder = node.root().parent().expect("the node's folder").to_owned();
    let status = Command::new("unshare")
        .args(["--mount", enter])
        .arg(&folder)
        .arg(env::current_exe().expect("the path of this bench"))
        .arg(INSIDE)
        .arg(&folder)
        .arg(own)
        .args(env::var_os("GPU_REFERENCE"))
        .status();
    assert!(status.expect("unshare").success(), "it needs root");
}

/// Measures the programs, taking turns, so that what else the machine does is the same for all.
fn measure(node: &Path, programs: &[OsString]) {
    let root = format!("--driver-root={}", node.join("root").display());
    let generate = [
        "cdi",
        "generate",
        &root,
        "--nvidia-cdi-hook-path=/usr/bin/nvidia-cdi-hook",
    ];
    let mut measured = vec![("its --version", &programs[0], &["--version"][..], Vec::new())];
    for (what, program) in ["cdi generate", "reference, cdi generate"].iter().zip(programs) {
        measured.push((*what, program, &generate, Vec::new()));
    }
    for _ in 0..RUNS {
        for (_, program, arguments, times) in &mut measured {
            times.push(time(program.as_ref(), arguments));
        }
    }
    for (what, program, _, mut times) in measured {
        times.sort_unstable();
        println!(
            "{what}: least {:?}, median {:?} of {RUNS} (`{}`)",
            times[0],
            times[RUNS / 2],
            Path::new(program).display()
        );
    }
}

fn time(program: &Path, arguments: &[&str]) -> Duration {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let started = Instant::now();
    let output = command.output().expect("the program starts");
    let took = started.elapsed();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    if arguments.len() > 1 {
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            text.matches("nvidia-caps/nvidia-cap").count() % (2 * GPUS * SEVENTHS.len()),
            0,
            "every MIG device is described"
        );
    }
    took
}
