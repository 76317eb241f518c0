use std::{collections::BTreeMap, path::Path};

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

#[test]
fn labels_of_this_node_and_of_its_inventory_are_the_same_but_for_what_is_around_the_gpus() {
    let dir = TempDir::new().unwrap();
    let node = Node::create(&NodeSpec::new("h100").gpus(2), dir.path()).unwrap();
    node.set_mig_mode(0, true).unwrap();
    node.create_mig(0, "1g.10gb", None).unwrap();
    let gpuctl = || {
        let mut gpuctl = program(env!("CARGO_BIN_EXE_gpuctl"));
        gpuctl.envs(node.env());
        gpuctl
    };
    let labels = |gpuctl: &mut std::process::Command| -> BTreeMap<String, String> {
        let output = run(gpuctl.args(["--mig-strategy=mixed", "-o", "json"]));
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_str(stdout(&output)).unwrap()
    };
    let live = labels(gpuctl().args(["labels", "--pci-labels"]));
    assert_eq!(live["nvidia.com/mig-1g.10gb.count"], "1");
    assert_eq!(live["feature.node.kubernetes.io/pci-10de.present"], "true");

    let inventory = dir.path().join("inventory.json");
    let output = run(gpuctl().args(["inventory", "-o", "json"]));
    std::fs::write(&inventory, &output.stdout).unwrap();
    let mut offline = labels(
        program(env!("CARGO_BIN_EXE_gpuctl"))
            .args(["labels", "--inventory"])
            .arg(&inventory),
    );
    for key in ["machine", "mode"] {
        let key = format!("nvidia.com/gpu.{key}");
        assert_eq!(
            offline.insert(key.clone(), live[&key].clone()).as_deref(),
            Some("unknown")
        );
    }
    let without_pci = live
        .into_iter()
        .filter(|(key, _)| !key.contains("pci-") && !key.contains("vgpu"))
        .collect();
    assert_eq!(offline, without_pci);
}

#[test]
fn labels_come_in_every_form_and_what_cannot_be_read_is_named() {
    let dir = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let gpu = r#"{ "index": 0, "minor": 0, "uuid": "GPU-01000100-0000-0000-0000-000000000000", "name": "NVIDIA L40S",
        "pci": { "address": "0000:1a:00.0", "id": "10de:26b9" } }"#;
    let inventory = file("inventory", &format!(r#"{{ "gpus": [{gpu}] }}"#));
    let config = file(
        "config",
        "sharing: { timeSlicing: { resources: [{ name: nvidia.com/gpu, replicas: 2 }] } }",
    );
    let labels = |inventory: &Path, config: &Path, form: &str| {
        let mut gpuctl = program(env!("CARGO_BIN_EXE_gpuctl"));
        gpuctl.args(["labels", "-o", form, "--inventory"]).arg(inventory);
        run(gpuctl.arg("--config-file").arg(config))
    };
    for (form, expected) in [
        ("json", "  \"nvidia.com/gpu.product\": \"NVIDIA-L40S-SHARED\",\n"),
        ("yaml", "nvidia.com/gpu.product: NVIDIA-L40S-SHARED\n"),
        ("table", "nvidia.com/gpu.product"),
    ] {
        let output = labels(&inventory, &config, form);
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{}",
            stderr(&output)
        );
        assert!(stdout(&output).contains(expected), "{}", stdout(&output));
    }
    for (inventory, config, expected) in [
        (Path::new("/nowhere"), &config, "cannot read `/nowhere`: No such file"),
        (&config, &config, "is not an inventory: expected value"),
        (&inventory, &inventory, "`gpus` in line 1 is not a known key"),
    ] {
        let output = labels(inventory, config, "json");
        assert_eq!((output.status.code(), stdout(&output)), (Some(1), ""));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}
