//! The resident memory of `gpu-toolkit` at rest: it has set up a node with 8 H100 in 7 MIG devices each, and waits.
//!
//! `cargo build --release -p gpu-examples --no-default-features --features toolkit --bin gpu-toolkit`, then, as root, `cargo bench
//! -p gpu-benches --bench toolkit_memory`. The program is the one beside this bench, or the one that `GPU_TOOLKIT` names (`gpu-stack`
//! goes with the name `gpu-toolkit`, a link to it).

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::{
    fs,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use gpu_benches::{Running, SEVENTHS, divided, program};

/// It has looked at the node again once or twice by then.
const REST: Duration = Duration::from_secs(12);

fn main() {
    let program = program("GPU_TOOLKIT", "gpu-toolkit");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    let node = divided(&path("node"), &SEVENTHS).expect("a divided node");
    fs::create_dir(path("programs")).expect("a folder");
    for name in ["gpu-container-runtime", "gpu-cdi-hook", "gpuctl"] {
        fs::write(path("programs").join(name), vec![0; 4 << 20]).expect("a file");
    }
    let started = Command::new(&program)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("ROOT", path("nvidia"))
        .env("TOOLKIT_SOURCE_ROOT", path("programs"))
        .env("TOOLKIT_PID_FILE", path("toolkit.pid"))
        .env("HOST_ROOT_MOUNT", node.root())
        .env("RUNTIME", "containerd")
        .env("RUNTIME_RESTART_MODE", "none")
        .env("CDI_ENABLED", "true")
        .env("CDI_OUTPUT_DIR", path("cdi"))
        .env("NVIDIA_DRIVER_ROOT", "/")
        .env("DRIVER_ROOT_CTR_PATH", node.root())
        .env("GPU_NVML_LIBRARY", node.library())
        .stderr(Stdio::null())
        .spawn();
    let daemon = Running(started.unwrap_or_else(|error| panic!("`{}`: {error}", program.display())));
    let begun = Instant::now();
    while !path("cdi/nvidia.yaml").exists() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the node is not described");
        sleep(Duration::from_millis(50));
    }
    sleep(REST);
    println!("{}", daemon.memory().expect("it runs"));
    println!("of `{}`", program.display());
}
