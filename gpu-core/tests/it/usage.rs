use std::fs;

use gpu_core::{GpuUsage, ProcessKind};
use gpu_sim::{Load, NodeSpec};

use crate::Simulated;

#[test]
fn gpus_that_nobody_uses_are_listed_and_lost_ones_are_problems() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(2));
    simulated.node.lose(1).unwrap();
    let usage = simulated.library().usage(&simulated.node.root()).unwrap();
    let gpu = simulated.node.gpus()[0].uuid.parse().unwrap();
    let processes = Vec::new();
    assert_eq!(usage.gpus, [GpuUsage { gpu, processes }]);
    assert_eq!(usage.problems.len(), 1);
    assert_eq!(usage.problems[0].index, 1);
    assert_eq!(serde_json::to_value(ProcessKind::Mps).unwrap(), "mps");
}

#[test]
fn a_process_is_listed_with_its_memory_and_its_container_and_on_its_instance() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let node = &simulated.node;
    node.set_mig_mode(1, true).unwrap();
    let made = node.create_mig(1, "2g.20gb", None).unwrap();
    let load = Load {
        memory_mib: 500,
        pid: Some(4242),
        ..Load::default()
    };
    node.load(0, load).unwrap();
    let instance = Some((made.id, made.devices[0].0));
    let second = Load {
        instance,
        pid: Some(4343),
        ..load
    };
    node.load(1, second).unwrap();
    let id = "0a".repeat(32);
    let folder = node.root().join("proc/4343");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("comm"), "infer\n").unwrap();
    fs::write(
        folder.join("cgroup"),
        format!("0::/kubepods.slice/kubepods-pod12ab_34.slice/cri-containerd-{id}.scope\n"),
    )
    .unwrap();

    let usage = simulated.library().usage(&node.root()).unwrap();
    assert_eq!(usage.problems, []);
    let [whole, divided] = usage.gpus.as_slice() else {
        panic!("{usage:?}")
    };
    let [process] = whole.processes.as_slice() else {
        panic!("{usage:?}")
    };
    assert_eq!(
        (process.pid, process.kind, process.memory_bytes),
        (4242, ProcessKind::Compute, Some(500 << 20))
    );
    assert_eq!(
        (process.gpu_instance, &process.command, &process.container),
        (None, &None, &None)
    );
    let [process] = divided.processes.as_slice() else {
        panic!("{usage:?}")
    };
    assert_eq!(process.gpu_instance.zip(process.compute_instance), instance);
    assert_eq!(process.command.as_deref(), Some("infer"));
    let container = process.container.as_ref().unwrap();
    assert_eq!(
        (container.id.as_str(), container.pod_uid.as_deref()),
        (id.as_str(), Some("12ab-34"))
    );
}
