//! The resident memory of an idle `gpu-device-plugin` after 100 Allocates, on a simulated node with 8 H100.
//!
//! `cargo build --release --bin gpu-device-plugin && cargo bench -p gpu-benches --bench plugin_memory`. The program is the one
//! beside this bench, or the one that `GPU_DEVICE_PLUGIN` names; so the vendor's can be measured in the same way.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::{
    env, fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use gpu_kubelet::double::{Config, Kubelet};
use gpu_plugin::names::GPU_RESOURCE;
use gpu_sim::NodeSpec;

const GPUS: usize = 8;
const ALLOCATES: usize = 100;
const SOON: Duration = Duration::from_secs(10);

/// The program under test, ended with this value.
struct Plugin(Child);

impl Drop for Plugin {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() {
    let program = env::var_os("GPU_DEVICE_PLUGIN").map_or_else(beside, PathBuf::from);
    assert!(program.exists(), "there is no `{}`: build it first", program.display());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = gpu_sim::Node::create(&NodeSpec::new("h100").gpus(GPUS), folder.path().join("node")).expect("a node");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let kubelet = runtime
        .block_on(Kubelet::start(Config::in_dir(folder.path().join("kubelet"))))
        .expect("a kubelet");

    let child = Command::new(&program)
        .envs(node.env())
        .env("KUBELET_SOCKET", kubelet.registration_socket())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let plugin = Plugin(child);
    runtime.block_on(async {
        kubelet
            .wait_for_allocatable(GPU_RESOURCE, GPUS, SOON)
            .await
            .expect("it offers its GPUs");
        for n in 0..ALLOCATES {
            let pod = format!("pod-{n}");
            kubelet
                .admit(pod.as_str(), "c", GPU_RESOURCE, 1)
                .await
                .expect("it allocates");
            kubelet.remove_pod(pod.as_str());
        }
    });
    let status = fs::read_to_string(format!("/proc/{}/status", plugin.0.id())).expect("its status");
    println!("{} after {ALLOCATES} Allocates:", program.display());
    for line in status.lines().filter(|line| {
        ["VmHWM", "VmRSS", "RssAn", "RssFi"]
            .iter()
            .any(|key| line.starts_with(key))
    }) {
        println!("  {line}");
    }
}

/// `target/release/gpu-device-plugin`, as this is `target/release/deps/plugin_memory-…`.
fn beside() -> PathBuf {
    let own = env::current_exe().expect("the path of this bench");
    own.ancestors().nth(2).unwrap_or(&own).join("gpu-device-plugin")
}
