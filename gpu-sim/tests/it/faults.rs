use std::{
    fs, thread,
    time::{Duration, Instant},
};

use gpu_sim::{Error, Node, NodeSpec, Recovery};
use nvml_wrapper::{
    bitmasks::event::EventTypes,
    enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor},
    enums::device::SampleValue,
    error::NvmlError,
    structs::device::FieldId,
};

use crate::{Simulated, nvml};

#[test]
fn a_lost_gpu_answers_only_that_it_is_lost_until_it_is_restored() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(3));
    let nvml = node.nvml();
    let gpu = nvml.device_by_index(1).unwrap();
    let uuid = gpu.uuid().unwrap();

    node.node.lose(1).unwrap();
    assert!(matches!(gpu.name(), Err(NvmlError::GpuLost)));
    assert!(matches!(
        gpu.temperature(TemperatureSensor::Gpu),
        Err(NvmlError::GpuLost)
    ));
    assert!(
        matches!(gpu.fan_speed(0), Err(NvmlError::GpuLost)),
        "also where the board supports nothing"
    );
    assert!(matches!(nvml.device_by_index(1), Err(NvmlError::GpuLost)));
    assert!(matches!(nvml.device_by_uuid(uuid.as_str()), Err(NvmlError::GpuLost)));
    assert_eq!(nvml.device_count().unwrap(), 3);
    assert!(nvml.device_by_index(2).unwrap().name().is_ok());

    node.node.restore(1).unwrap();
    assert_eq!(gpu.uuid().unwrap(), uuid);
}

#[test]
fn a_denied_gpu_answers_only_that_one_may_not_ask() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let nvml = node.nvml();
    let gpu = nvml.device_by_index(1).unwrap();
    node.node.deny(1, true).unwrap();
    assert!(matches!(gpu.name(), Err(NvmlError::NoPermission)));
    assert!(matches!(nvml.device_by_index(1), Err(NvmlError::NoPermission)));
    assert!(nvml.device_by_index(0).unwrap().name().is_ok());
    node.node.restore(1).unwrap();
    assert!(gpu.name().is_ok());
}

#[test]
fn a_hung_gpu_does_not_answer_until_restored_and_holds_up_no_other() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let nvml = node.nvml();
    let gpu = nvml.device_by_index(1).unwrap();
    node.node.hang(1, Duration::from_hours(1)).unwrap();
    thread::scope(|scope| {
        let asked = scope.spawn(|| gpu.name().unwrap());
        for _ in 0..20 {
            assert!(nvml.device_by_index(0).unwrap().name().is_ok());
            thread::sleep(Duration::from_millis(2));
        }
        assert!(!asked.is_finished());
        node.node.restore(1).unwrap();
        assert_eq!(asked.join().unwrap(), "NVIDIA H100 80GB HBM3");
    });
    let before = Instant::now();
    node.node.hang(1, Duration::from_millis(60)).unwrap();
    assert!(nvml.device_by_index(1).is_ok());
    assert!(
        before.elapsed() >= Duration::from_millis(50),
        "the handle, too, waits for its end"
    );
}

#[test]
fn a_slow_gpu_takes_longer_for_each_call() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let nvml = node.nvml();
    let gpu = nvml.device_by_index(0).unwrap();
    node.node.slow(0, Duration::from_millis(30)).unwrap();
    let before = Instant::now();
    gpu.name().unwrap();
    gpu.name().unwrap();
    assert!(before.elapsed() >= Duration::from_millis(60));
    node.node.restore(0).unwrap();
    gpu.name().unwrap();
}

#[test]
fn memory_errors_are_counted_and_reported_once() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let nvml = node.nvml();
    let gpu = nvml.device_by_index(0).unwrap();
    let kinds = EventTypes::DOUBLE_BIT_ECC_ERROR | EventTypes::SINGLE_BIT_ECC_ERROR;
    let set = gpu.register_events(kinds, nvml.create_event_set().unwrap()).unwrap();
    node.node.inject_ecc(0, 3, 2).unwrap();
    let count = |kind, counter| gpu.total_ecc_errors(kind, counter).unwrap();
    assert_eq!(count(MemoryError::Corrected, EccCounter::Volatile), 3);
    assert_eq!(count(MemoryError::Uncorrected, EccCounter::Aggregate), 2);
    assert_eq!(set.wait(100).unwrap().event_type, EventTypes::SINGLE_BIT_ECC_ERROR);
    assert_eq!(set.wait(100).unwrap().event_type, EventTypes::DOUBLE_BIT_ECC_ERROR);
    assert!(matches!(set.wait(10), Err(NvmlError::Timeout)));
    node.node.reset(0).unwrap();
    assert_eq!(count(MemoryError::Uncorrected, EccCounter::Volatile), 0);
    assert_eq!(count(MemoryError::Uncorrected, EccCounter::Aggregate), 2);
}

#[test]
fn initialisation_fails_as_told_and_recovers() {
    let node = Simulated::new(&NodeSpec::new("h200").gpus(1));
    let before = node.nvml();
    node.node.set_init_error(Some(18)).unwrap();
    // One library is one session: while it lasts, initialising again succeeds.
    assert!(nvml(&node.node.library()).is_ok());
    drop(before);
    assert!(matches!(
        nvml(&node.node.library()),
        Err(NvmlError::LibRmVersionMismatch)
    ));
    node.node.set_init_error(Some(9)).unwrap();
    assert!(matches!(nvml(&node.node.library()), Err(NvmlError::DriverNotLoaded)));
    node.node.set_init_error(None).unwrap();
    assert!(nvml(&node.node.library()).is_ok());
}

#[test]
fn a_truncated_node_file_fails_initialisation_and_is_named_by_open() {
    let node = Simulated::new(&NodeSpec::new("h200").gpus(2));
    let file = node.node.folder().join("node.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let cut = text.find("minor: 1").unwrap();
    fs::write(&file, &text[..cut]).unwrap();
    assert!(matches!(nvml(&node.node.library()), Err(NvmlError::Unknown)));
    let error = Node::open(node.node.folder()).unwrap_err();
    assert!(
        matches!(&error, Error::NodeFile { path, line: Some(_), .. } if *path == file),
        "{error}"
    );
}

#[test]
fn a_library_of_no_node_says_that_no_driver_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let bare = folder.path().join("libnvidia-ml.so.1");
    fs::copy(gpu_sim::library().unwrap(), &bare).unwrap();
    assert!(matches!(nvml(&bare), Err(NvmlError::DriverNotLoaded)));
}

#[test]
fn the_copy_in_the_driver_root_finds_the_node_it_lies_in() {
    let node = Simulated::new(&NodeSpec::new("h200").gpus(2));
    let folder = node
        .node
        .root()
        .join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
    let nvml = nvml(&folder.join("libnvidia-ml.so.1")).unwrap();
    assert_eq!(nvml.device_count().unwrap(), 2);
    node.node.lose(0).unwrap();
    assert!(matches!(nvml.device_by_index(0), Err(NvmlError::GpuLost)));
}

#[test]
fn nothing_is_left_of_a_node_that_could_not_be_made() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("node");
    let create = |spec: NodeSpec| Node::create(&spec, &target).unwrap_err();
    assert!(matches!(create(NodeSpec::new("h300")), Error::UnknownProfile { .. }));
    assert!(matches!(
        create(NodeSpec::new("h100").driver("1")),
        Error::UnknownDriver { .. }
    ));
    assert!(matches!(
        create(NodeSpec::new("h100").gpus(9)),
        Error::TooManyGpus { asked: 9, room: 8, .. }
    ));
    assert!(matches!(
        create(NodeSpec::new("h100").nvidia_smi("/absent")),
        Error::Read { .. }
    ));
    assert!(!target.exists());
}

#[test]
fn a_folder_with_something_in_it_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("precious"), "x").unwrap();
    assert!(matches!(
        Node::create(&NodeSpec::new("h100"), folder.path()),
        Err(Error::NotEmpty { .. })
    ));
    assert!(matches!(Node::open(folder.path()), Err(Error::NotANode { .. })));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_gpu_that_is_not_there_cannot_be_lost() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    assert!(matches!(
        node.node.lose(2),
        Err(Error::NoSuchGpu { index: 2, count: 2 })
    ));
    assert!(matches!(node.node.inject_xid(7, 79), Err(Error::NoSuchGpu { .. })));
}

#[test]
fn what_the_driver_wants_done_is_a_field_and_others_are_not_modelled() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let nvml = node.nvml();
    let gpu = nvml.device_by_index(1).unwrap();
    let ask = || {
        let [action, other] = <[_; 2]>::try_from(gpu.field_values_for(&[FieldId(230), FieldId(1)]).unwrap()).unwrap();
        assert!(matches!(other.unwrap().value, Err(NvmlError::NotSupported)));
        match action.unwrap().value {
            Ok(SampleValue::U32(action)) => action,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(), 0);
    node.node.want_recovery(1, Recovery::Reboot).unwrap();
    assert_eq!(ask(), 2);
    node.node.reset(1).unwrap();
    assert_eq!(ask(), 0);
    node.node.lose(1).unwrap();
    assert!(matches!(gpu.field_values_for(&[FieldId(230)]), Err(NvmlError::GpuLost)));
}

/// How the GPUs of a node are numbered and told by NVML: index and UUID.
fn counted(nvml: &nvml_wrapper::Nvml) -> Vec<String> {
    let count = nvml.device_count().expect("a count");
    let uuid = |index| nvml.device_by_index(index)?.uuid();
    (0..count).map(|index| uuid(index).expect("it answers")).collect()
}

#[test]
fn a_gpu_that_is_taken_out_is_known_to_nobody_until_it_is_put_back() {
    let mut node = Simulated::new(&NodeSpec::new("h100").gpus(3));
    let uuids: Vec<_> = node.node.gpus().iter().map(|gpu| gpu.uuid.clone()).collect();
    let root = node.node.root();
    let shown = |path: &str| root.join(path).symlink_metadata().is_ok();
    let pci = node.node.gpus()[1].pci;
    let paths = [
        format!("proc/driver/nvidia/gpus/{pci}"),
        "proc/driver/nvidia/capabilities/gpu1".to_owned(),
        "sys/kernel/iommu_groups/1".to_owned(),
        format!("sys/bus/pci/devices/{pci}"),
        format!("sys/bus/pci/drivers/nvidia/{pci}"),
        format!("sys/devices/{}/{pci}", pci.root()),
    ];
    let before = node.nvml();
    let gpu = before.device_by_index(1).unwrap();
    node.node.set_mig_mode(1, true).unwrap();
    node.node.create_mig(1, "1g.10gb", None).unwrap();
    let caps = || fs::read_dir(root.join("dev/nvidia-caps")).unwrap().count();
    assert_eq!(caps(), 4);

    node.node.unplug(1).unwrap();
    let left = [uuids[0].clone(), uuids[2].clone()];
    for nvml in [&before, &node.nvml()] {
        assert_eq!(counted(nvml), left);
        let absent = nvml.device_by_uuid(uuids[1].as_str());
        assert!(matches!(absent, Err(NvmlError::NotFound)), "{absent:?}");
    }
    assert!(matches!(gpu.name(), Err(NvmlError::InvalidArg)));
    assert!(paths.iter().all(|path| !shown(path)));
    assert_eq!(caps(), 2);
    assert!(shown("dev/nvidia1"), "who made it does not take it back");
    assert!(node.node.unplug(1).is_err(), "it is out");
    node.node.load_driver("550").unwrap();
    assert!(paths.iter().all(|path| !shown(path)), "also with another driver");

    node.node.plug(1).unwrap();
    assert_eq!(counted(&node.nvml()), uuids);
    assert!(paths.iter().all(|path| shown(path)));
    assert!(
        node.node.create_mig(1, "1g.10gb", None).is_err(),
        "its mode was set anew"
    );

    node.node.unplug(1).unwrap();
    node.node.reboot().unwrap();
    assert_eq!(counted(&node.nvml()), uuids, "a restart looks through the bus");
    assert!(paths.iter().all(|path| shown(path)));
}

#[test]
fn a_gpu_that_is_in_use_is_taken_out_only_once_it_is_lost() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let nvml = node.nvml();
    node.node.load(0, gpu_sim::Load::default()).unwrap();
    let refused = node.node.unplug(0);
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    assert_eq!(nvml.device_count().unwrap(), 2);
    node.node.lose(0).unwrap();
    node.node.unplug(0).unwrap();
    assert_eq!(nvml.device_count().unwrap(), 1);
    node.node.plug(0).unwrap();
    let gpu = nvml.device_by_index(0).unwrap();
    assert_eq!(gpu.uuid().unwrap(), node.node.gpus()[0].uuid);
    assert!(gpu.running_compute_processes().unwrap().is_empty());
}

#[test]
fn who_waits_for_events_of_a_gpu_waits_no_more_once_it_was_taken_out() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let nvml = node.nvml();
    let watch = |set, gpu| {
        let gpu = nvml.device_by_index(gpu).unwrap();
        gpu.register_events(EventTypes::CRITICAL_XID_ERROR, set).unwrap()
    };
    let both = watch(watch(nvml.create_event_set().unwrap(), 0), 1);
    node.node.lose(0).unwrap();
    assert!(matches!(both.wait(20), Err(NvmlError::GpuLost)));
    node.node.unplug(0).unwrap();
    node.node.inject_xid(1, 48).unwrap();
    assert!(both.wait(1000).is_ok());
    node.node.plug(0).unwrap();
    let anew = watch(nvml.create_event_set().unwrap(), 0);
    node.node.inject_xid(0, 48).unwrap();
    assert!(anew.wait(1000).is_ok());
    assert!(matches!(both.wait(20), Err(NvmlError::Timeout)));
}
