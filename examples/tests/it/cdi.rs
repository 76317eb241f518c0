//! `gpuctl cdi` where the vendor's recorded runs (nvidia-ctk v1.20.0+27) wrote no spec, and its list of devices.

use gpu_sim::{Node, NodeSpec};
use serde_json::json;
use tempfile::TempDir;

use super::{program, run, stderr, stdout};

#[track_caller]
fn check(node: &Node, mode: &str, code: i32, expected: &str) {
    let mut gpuctl = program(env!("CARGO_BIN_EXE_gpuctl"));
    gpuctl.envs(node.env()).args(["cdi", "generate", "--mode", mode]);
    gpuctl.arg("--driver-root").arg(node.root());
    let output = run(&mut gpuctl);
    assert_eq!((output.status.code(), stdout(&output)), (Some(code), ""), "{mode}");
    let text = stderr(&output).replace(&node.root().display().to_string(), "ROOT");
    assert!(text.contains(expected), "{mode}: {text}");
}

/// The vendor's program says `empty device edits` of each but the first.
#[test]
fn where_there_is_no_spec_it_is_said_what_was_looked_for() {
    let dir = TempDir::new().unwrap();
    let node = Node::create(&NodeSpec::new("a100").gpus(1), dir.path()).unwrap();
    // a100-1gpu-mode-bogus
    check(&node, "bogus", 2, "invalid value 'bogus'");
    // a100-1gpu-mode-{csv,gdrcopy,gds,imex,mofed,nvswitch}
    check(
        &node,
        "csv",
        1,
        "error: no device node that a csv file names in the device root `ROOT`",
    );
    check(&node, "gdrcopy", 1, "error: no /dev/gdrdrv in the device root `ROOT`");
    check(&node, "gds", 1, "error: no /dev/nvidia-fs* in the device root `ROOT`");
    check(&node, "imex", 1, "error: no /dev/nvidia-caps-imex-channels/channel*");
    check(&node, "mofed", 1, "error: no /dev/infiniband/uverbs* or");
    check(&node, "nvswitch", 1, "error: no /dev/nvidia-nvswitch*");
    // no-devnodes
    for entry in std::fs::read_dir(node.root().join("dev")).unwrap() {
        let path = entry.unwrap().path();
        if path.display().to_string().contains("/dev/nvidia") && !path.is_dir() {
            std::fs::remove_file(path).unwrap();
        }
    }
    check(&node, "nvml", 1, "has no device node `/dev/nvidia0`");
    // a100-1gpu-mig-empty
    node.set_mig_mode(0, true).unwrap();
    check(&node, "nvml", 1, "is in MIG mode and has no MIG devices");
}

/// The record `cdi-list`.
#[test]
fn devices_are_listed_by_their_names() {
    let dir = TempDir::new().unwrap();
    let gpus = [0, 1].map(|number| format!("GPU-12345678-1234-1234-1234-12345678000{number}"));
    let devices = ["all", &gpus[1], "1", &gpus[0], "0"]
        .map(|name| json!({ "name": name, "containerEdits": { "deviceNodes": [{ "path": "/dev/nvidia0" }] } }));
    let spec = json!({ "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices });
    std::fs::write(dir.path().join("nvidia.json"), spec.to_string()).unwrap();
    let output = run(program(env!("CARGO_BIN_EXE_gpuctl"))
        .args(["cdi", "list", "--spec-dir"])
        .arg(dir.path()));
    let expected = ["0", "1", &gpus[0], &gpus[1], "all"].map(|name| format!("nvidia.com/gpu={name}\n"));
    assert_eq!(stdout(&output), expected.concat());
    assert_eq!(stderr(&output), "Found 5 CDI devices\n");
}
