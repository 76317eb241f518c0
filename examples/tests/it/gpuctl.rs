use gpu_core::Inventory;
use gpu_sim::{Node, NodeSpec};
use tempfile::TempDir;

use super::{program, run, stderr, stdout};

#[test]
fn json_goes_to_standard_output_alone() {
    let dir = TempDir::new().unwrap();
    let node = Node::create(&NodeSpec::new("h100").gpus(3), dir.path()).unwrap();
    node.lose(1).unwrap();
    let output = run(program(env!("CARGO_BIN_EXE_gpuctl"))
        .args(["inventory", "-o", "json"])
        .envs(node.env()));
    assert!(output.status.success());
    let inventory: Inventory = serde_json::from_str(stdout(&output)).unwrap();
    let uuids: Vec<_> = inventory.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
    assert_eq!(uuids, [&node.gpus()[0].uuid, &node.gpus()[2].uuid]);
    assert!(stderr(&output).starts_with("warning: GPU 1"), "{}", stderr(&output));
    assert_eq!(inventory.problems.len(), 1);
}

#[test]
fn a_variable_that_is_set_and_empty_counts_as_not_set() {
    let dir = TempDir::new().unwrap();
    let node = Node::create(&NodeSpec::new("h100").gpus(1), dir.path()).unwrap();
    let mut gpuctl = program(env!("CARGO_BIN_EXE_gpuctl"));
    gpuctl
        .args(["inventory", "--nvml-library"])
        .arg(node.library())
        .envs([("GPU_HOST_ROOT", ""), ("NVIDIA_DRIVER_ROOT", "")]);
    let output = run(&mut gpuctl);
    assert!(output.status.success(), "{}", stderr(&output));
}
