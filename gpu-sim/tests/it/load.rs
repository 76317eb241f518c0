//! Simulated processes.

use gpu_sim::{Load, NodeSpec};
use nvml_wrapper::enums::device::UsedGpuMemory;

use crate::Simulated;

const IN_USE: &str = "In use by another client";

#[test]
fn a_process_shows_with_its_memory_and_keeps_the_gpu_busy() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let nvml = node.nvml();
    let gpu = nvml.device_by_index(0).unwrap();
    let load = |utilization, memory_mib, pid| Load {
        utilization,
        memory_mib,
        pid,
        ..Load::default()
    };
    assert_eq!(node.node.load(0, load(30, 1000, Some(77))).unwrap(), 77);
    let other = node.node.load(0, load(80, 500, None)).unwrap();
    assert!(other > 1 << 22, "no process of this machine");
    let seen: Vec<_> = gpu
        .running_compute_processes()
        .unwrap()
        .into_iter()
        .map(|process| (process.pid, process.used_gpu_memory, process.gpu_instance_id))
        .collect();
    let memory = |mib: u64| UsedGpuMemory::Used(mib << 20);
    assert_eq!(seen, [(77, memory(1000), None), (other, memory(500), None)]);
    assert_eq!(gpu.utilization_rates().unwrap().gpu, 100);
    assert_eq!(gpu.memory_info().unwrap().used, 1500 << 20);
    assert_eq!(
        nvml.device_by_index(1)
            .unwrap()
            .running_compute_processes_count()
            .unwrap(),
        0
    );

    node.node.load(0, load(5, 10, Some(77))).unwrap();
    assert_eq!(gpu.memory_info().unwrap().used, 510 << 20);
    let refused = node.node.load(0, load(1, 90_000, None)).unwrap_err().to_string();
    assert_eq!(refused, "cannot run a process on GPU 0: Insufficient Memory");
    node.node.unload(0, Some(77)).unwrap();
    node.node.unload(0, None).unwrap();
    assert_eq!(gpu.running_compute_processes_count().unwrap(), 0);
}

#[test]
fn a_process_on_a_mig_device_keeps_it_in_use() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let nvml = node.nvml();
    let gpu = nvml.device_by_index(0).unwrap();
    node.node.set_mig_mode(0, true).unwrap();
    let made = node.node.create_mig(0, "1g.10gb", Some(0)).unwrap();
    let load = Load {
        utilization: 50,
        memory_mib: 100,
        pid: Some(5),
        instance: None,
    };
    assert!(
        node.node.load(0, load).is_err(),
        "a partitioned GPU runs nothing itself"
    );
    let instance = Some((made.id, 0));
    node.node.load(0, Load { instance, ..load }).unwrap();
    let device = nvml.device_by_uuid(made.devices[0].2.as_str()).unwrap();
    for device in [&gpu, &device] {
        let processes = device.running_compute_processes().unwrap();
        assert_eq!(processes.len(), 1);
        assert_eq!(
            (processes[0].gpu_instance_id, processes[0].compute_instance_id),
            (Some(made.id), Some(0))
        );
    }
    assert_eq!(device.memory_info().unwrap().used, 100 << 20);
    let message = node.node.destroy_mig(0, made.id).unwrap_err().to_string();
    assert!(message.ends_with(IN_USE), "{message}");
    assert_eq!(
        node.node.mig(0).unwrap(),
        std::slice::from_ref(&made),
        "nothing of it is gone"
    );
    assert!(node.node.reset(0).unwrap_err().to_string().ends_with(IN_USE));
    node.node.unload(0, Some(5)).unwrap();
    node.node.destroy_mig(0, made.id).unwrap();
}

#[test]
fn a_change_of_the_mode_waits_while_the_gpu_is_in_use() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    node.node.load(0, Load::default()).unwrap();
    assert!(!node.node.set_mig_mode(0, true).unwrap());
    assert_eq!(node.node.mig_mode(0).unwrap(), (false, true));
    node.node.unload(0, None).unwrap();
    node.node.reset(0).unwrap();
    assert_eq!(node.node.mig_mode(0).unwrap(), (true, true));
}
