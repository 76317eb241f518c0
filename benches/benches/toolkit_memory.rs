//! The resident memory of `gpu-toolkit` at rest: it has set up a node with 8 H100 in 7 MIG devices each, and waits.
//!
//! `cargo build --release -p gpu-examples --no-default-features --features toolkit --bin gpu-toolkit`, then, as root, `cargo bench
//! -p gpu-benches --bench toolkit_memory`. The program is the one beside this bench, or the one that `GPU_TOOLKIT` names (`gpu-stack`
//! goes with the name `gpu-toolkit`, a link to it).

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use gpu_sim::{Node, NodeSpec};

const GPUS: usize = 8;
const DEVICES: usize = 7;
/// It has looked at the node again once or twice by then.
const REST: Duration = Duration::from_secs(12);

/// A daemon that does not outlive the bench.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() {
    let program = env::var_os("GPU_TOOLKIT").map_or_else(beside, PathBuf::from);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    let node = Node::create(&NodeSpec::new("h100").gpus(GPUS), path("node")).expect("a node");
    for gpu in 0..GPUS {
        node.set_mig_mode(gpu, true).expect("MIG mode");
        for _ in 0..DEVICES {
            node.create_mig(gpu, "1g.10gb", None).expect("a MIG device");
        }
    }
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
    let daemon = Daemon(started.unwrap_or_else(|error| panic!("`{}`: {error}", program.display())));
    let begun = Instant::now();
    while !path("cdi/nvidia.yaml").exists() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the node is not described");
        sleep(Duration::from_millis(50));
    }
    sleep(REST);
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.0.id())).expect("it runs");
    let wanted = ["VmHWM", "VmRSS", "RssAnon", "RssFile", "Threads"];
    for line in status
        .lines()
        .filter(|line| wanted.iter().any(|key| line.starts_with(key)))
    {
        println!("{line}");
    }
    println!("of `{}`", program.display());
}

/// `target/release/gpu-toolkit`, as this is `target/release/deps/toolkit_memory-…`.
fn beside() -> PathBuf {
    let own = env::current_exe().expect("the path of this bench");
    own.ancestors().nth(2).unwrap_or(Path::new("")).join("gpu-toolkit")
}
