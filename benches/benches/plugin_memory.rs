//! The resident memory of an idle `gpu-device-plugin` after 100 Allocates, on a simulated node with 8 H100.
//!
//! `cargo build --release --bin gpu-device-plugin && cargo bench -p gpu-benches --bench plugin_memory`. The program is the one
//! beside this bench, or the one that `GPU_DEVICE_PLUGIN` names. The vendor's puts its socket into the kubelet's own folder alone, so
//! gpu-kubelet's example `ask_plugin` measures it.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use gpu_benches::{Running, program};
use gpu_kubelet::double::{Config, Kubelet};
use gpu_plugin::names::GPU_RESOURCE;
use gpu_sim::NodeSpec;

const GPUS: usize = 8;
const ALLOCATES: usize = 100;
const SOON: Duration = Duration::from_secs(10);

fn main() {
    let program = program("GPU_DEVICE_PLUGIN", "gpu-device-plugin");
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
    let plugin = Running(child);
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
    println!("{} after {ALLOCATES} Allocates:", program.display());
    println!("{}", plugin.memory().expect("its status"));
}
