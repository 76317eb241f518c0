//! The device plugin with several configuration files, of which the node's label names one.

use std::fs;

use gpu_kubelet::double::{Config, Kubelet};
use gpu_sim::{Node, NodeSpec};
use rustix::process::Signal;
use serde_json::json;

use super::{LONG, Running, program, run, stderr};

#[path = "../mig_manager/api.rs"]
mod api;

use api::Api;

const GPU: &str = "nvidia.com/gpu";
const LABEL: &str = "nvidia.com/device-plugin.config";

fn kubeconfig(api: &Api) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": format!("http://127.0.0.1:{}", api.port) } }],
        "users": [{ "name": "c", "user": {} }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "c" } }],
    })
    .to_string()
}

fn sharing(replicas: u32) -> String {
    format!("sharing: {{ timeSlicing: {{ resources: [{{ name: gpu, replicas: {replicas} }}] }} }}")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_that_the_label_names_is_in_force_without_a_sidecar() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::create(&NodeSpec::new("h100").gpus(4), folder.path().join("node")).unwrap();
    let kubelet = Kubelet::start(Config::in_dir(folder.path())).await.unwrap();
    let configs = folder.path().join("configs");
    fs::create_dir(&configs).unwrap();
    for (name, text) in [("default", String::new()), ("two", sharing(2)), ("three", sharing(3))] {
        fs::write(configs.join(name), text).unwrap();
    }
    let api = Api::start();
    fs::write(folder.path().join("kubeconfig"), kubeconfig(&api)).unwrap();
    let plugin = || {
        let mut command = program(env!("CARGO_BIN_EXE_gpu-device-plugin"));
        command
            .envs(node.env())
            .env("KUBELET_SOCKET", kubelet.registration_socket())
            .env("KUBECONFIG", folder.path().join("kubeconfig"))
            .env("CONFIG_FILE_SRCDIR", &configs);
        command
    };
    let output = run(&mut plugin());
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("NODE_NAME"), "{}", stderr(&output));

    let named = |name: Option<&str>| {
        api.change(|state| match name {
            Some(name) => drop(state.labels.insert(LABEL.to_owned(), json!(name))),
            None => drop(state.labels.remove(LABEL)),
        });
    };
    named(Some("two"));
    let running = Running::start(plugin().env("NODE_NAME", "n").env("FALLBACK_STRATEGIES", "named"));
    kubelet.wait_for_allocatable(GPU, 8, LONG).await.unwrap();
    named(Some("three"));
    kubelet.wait_for_allocatable(GPU, 12, LONG).await.unwrap();
    // The file in force is edited.
    fs::write(configs.join("three"), sharing(5)).unwrap();
    kubelet.wait_for_allocatable(GPU, 20, LONG).await.unwrap();
    named(None);
    kubelet.wait_for_allocatable(GPU, 4, LONG).await.unwrap();
    assert_eq!(kubelet.registrations(GPU), 1);
    running.signal(Signal::TERM);
    let output = running.end(LONG);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}
