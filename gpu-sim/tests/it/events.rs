use std::time::{Duration, Instant};

use gpu_sim::NodeSpec;
use nvml_wrapper::{
    bitmasks::event::EventTypes, enums::event::XidError, error::NvmlError, event::EventSet,
    struct_wrappers::event::EventData,
};

use crate::Simulated;

/// Everything that the set has to tell, as GPU index and event data, until it is silent.
fn drain(set: &EventSet<'_>) -> Vec<(u32, u64)> {
    let mut seen = Vec::new();
    loop {
        match set.wait(20) {
            Ok(EventData {
                device,
                event_type,
                event_data,
                ..
            }) => {
                assert_eq!(event_type, EventTypes::CRITICAL_XID_ERROR);
                let Some(XidError::Value(code)) = event_data else {
                    panic!("{event_data:?}")
                };
                seen.push((device.index().expect("the GPU answers"), code));
            }
            Err(NvmlError::Timeout) => return seen,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn an_xid_reaches_each_event_set_that_waits_for_it_once() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let nvml = node.nvml();
    let register = |set, gpu| {
        nvml.device_by_index(gpu)
            .unwrap()
            .register_events(EventTypes::CRITICAL_XID_ERROR, set)
            .unwrap()
    };

    node.node.inject_xid(0, 13).unwrap(); // nobody waits yet
    let both = register(register(nvml.create_event_set().unwrap(), 0), 1);
    let second = register(nvml.create_event_set().unwrap(), 1);
    node.node.inject_xid(0, 79).unwrap();
    node.node.inject_xid(1, 48).unwrap();
    let late = register(nvml.create_event_set().unwrap(), 0);

    assert_eq!(drain(&both), [(0, 79), (1, 48)]);
    assert_eq!(drain(&second), [(1, 48)]);
    assert_eq!(drain(&late), []);
    assert_eq!(drain(&both), []);
}

#[test]
fn a_wait_ends_with_the_event_or_at_its_time_out() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let nvml = node.nvml();
    let set = nvml.create_event_set().unwrap();
    let set = nvml
        .device_by_index(0)
        .unwrap()
        .register_events(EventTypes::CRITICAL_XID_ERROR, set)
        .unwrap();

    let start = Instant::now();
    assert!(matches!(set.wait(50), Err(NvmlError::Timeout)));
    assert!(start.elapsed() >= Duration::from_millis(50));

    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            node.node.inject_xid(0, 79).unwrap();
        });
        let start = Instant::now();
        set.wait(10_000).unwrap();
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    });
}

#[test]
fn events_that_no_board_reports_cannot_be_registered() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let nvml = node.nvml();
    let set = nvml.create_event_set().unwrap();
    let unknown = EventTypes::from_bits_retain(1 << 40);
    let refused = nvml.device_by_index(0).unwrap().register_events(unknown, set);
    assert!(refused.is_err());
}

#[test]
fn a_set_with_a_lost_gpu_gives_what_is_there_and_then_fails_at_once() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(3));
    let nvml = node.nvml();
    let set = |gpus: &[u32]| {
        gpus.iter().fold(nvml.create_event_set().unwrap(), |set, gpu| {
            let device = nvml.device_by_index(*gpu).unwrap();
            device.register_events(EventTypes::CRITICAL_XID_ERROR, set).unwrap()
        })
    };
    let (with, without) = (set(&[0, 1]), set(&[2]));
    node.node.inject_xid(0, 79).unwrap();
    node.node.lose(1).unwrap();
    assert!(with.wait(10_000).is_ok());
    let start = Instant::now();
    assert!(matches!(with.wait(10_000), Err(NvmlError::GpuLost)));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(
        matches!(without.wait(20), Err(NvmlError::Timeout)),
        "others do not notice"
    );
    node.node.restore(1).unwrap();
    assert!(matches!(with.wait(20), Err(NvmlError::Timeout)));
}
