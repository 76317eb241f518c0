use std::{collections::BTreeSet, time::Instant};

use super::{LONG, program, run, stderr, stdout};

/// What a run says of its hardware.
#[derive(Debug, PartialEq, Eq)]
struct Hardware {
    uuids: Vec<String>,
    nodes: Vec<String>,
}

/// Runs it and reads the inventory's table: UUIDs and device nodes in PCI order.
fn story(arguments: &[&str]) -> (Hardware, String) {
    let started = Instant::now();
    let output = run(program(env!("CARGO_BIN_EXE_quickstart")).args(arguments));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(started.elapsed() < LONG);
    // The one thing that goes wrong is meant to.
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("is unhealthy (it was healthy): Xid 79"),
        "{}",
        stderr(&output)
    );
    let text = stdout(&output).to_owned();
    let rows = text
        .lines()
        .skip_while(|line| !line.starts_with("2. "))
        .take_while(|line| !line.starts_with("3. "));
    let words: Vec<&str> = rows.flat_map(str::split_whitespace).collect();
    let with = |prefix: &str| {
        let words = words.iter().filter(|word| word.starts_with(prefix));
        words.map(|word| (*word).to_owned()).collect::<Vec<_>>()
    };
    let hardware = Hardware {
        uuids: with("GPU-"),
        nodes: with("/dev/nvidia"),
    };
    assert_eq!((hardware.uuids.len(), hardware.nodes.len()), (4, 4), "{text}");
    (hardware, text)
}

#[test]
fn the_story_is_told_to_its_end() {
    let (hardware, text) = story(&[]);
    let told = |needle: &str| text.find(needle).unwrap_or_else(|| panic!("no `{needle}` in\n{text}"));
    let four = told("Allocatable nvidia.com/gpu: 4");
    let three = told("Allocatable nvidia.com/gpu: 3");
    assert!(four < three && three < told("Summary"));
    // The pod gets one of the GPUs: its CDI name and its device node belong together.
    let pod = &text[told("5. A pod asks")..told("6. A GPU breaks")];
    let given: Vec<_> = (0..4)
        .filter(|n| pod.contains(&format!("gpu={}", hardware.uuids[*n])))
        .collect();
    let [given] = given.as_slice() else { panic!("{pod}") };
    assert!(
        pod.lines()
            .any(|line| line.split_whitespace().any(|word| word == hardware.nodes[*given])),
        "{pod}"
    );
    // Mounts are the driver's files, by folder.
    assert!(pod.contains("mounts   /") && pod.contains("/usr/bin: nvidia-"), "{pod}");
}

#[test]
fn a_seed_makes_its_own_hardware_each_time() {
    let (one, _) = story(&["--seed", "1"]);
    assert_eq!(one, story(&["--seed", "1"]).0);
    let (two, _) = story(&["--seed", "2"]);
    let both: BTreeSet<_> = one.uuids.iter().chain(&two.uuids).collect();
    assert_eq!(both.len(), 8, "no UUID is in both");
    assert_eq!(one.nodes, two.nodes);
}

#[test]
fn permuted_device_nodes_are_the_same_nodes_in_another_order() {
    let (usual, _) = story(&["--seed", "1"]);
    let (permuted, _) = story(&["--seed", "1", "--permute-pci"]);
    assert_eq!(permuted, story(&["--seed", "1", "--permute-pci"]).0);
    assert_ne!(permuted.nodes, usual.nodes);
    assert_eq!(BTreeSet::from_iter(&permuted.nodes), BTreeSet::from_iter(&usual.nodes));
    // A board keeps its UUID and its node wherever it is plugged in.
    let pairs = |of: &Hardware| -> BTreeSet<_> { of.uuids.iter().cloned().zip(of.nodes.iter().cloned()).collect() };
    assert_eq!(pairs(&permuted), pairs(&usual));
}

#[test]
fn bad_usage_and_a_missing_library_have_their_exit_codes() {
    let output = run(program(env!("CARGO_BIN_EXE_quickstart")).args(["--seed=1", "--nvml-library=/x"]));
    assert_eq!(output.status.code(), Some(2), "a seed is of no use to real hardware");
    let output = run(program(env!("CARGO_BIN_EXE_quickstart")).arg("--nvml-library=/nonexistent/libnvidia-ml.so.1"));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        "error: cannot read the node: no NVIDIA driver library: there is no `/nonexistent/libnvidia-ml.so.1`\n"
    );
}
