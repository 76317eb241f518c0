use std::{
    ops::ControlFlow,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use gpu_core::{
    Change,
    nvml::{HealthEventKind, NodeEvent, WatchConfig, Watcher},
};
use gpu_sim::NodeSpec;

use crate::Simulated;

const SOON: Duration = Duration::from_secs(10);

fn watch(simulated: &Simulated) -> (Watcher, mpsc::Receiver<NodeEvent>) {
    watch_every(simulated, Duration::from_millis(20))
}

fn watch_every(simulated: &Simulated, interval: Duration) -> (Watcher, mpsc::Receiver<NodeEvent>) {
    let library = Arc::new(simulated.library());
    let inventory = library.inventory(&simulated.node.root()).expect("the node is read");
    let config = WatchConfig {
        host_root: simulated.node.root(),
        interval,
        ..WatchConfig::default()
    };
    let (sender, receiver) = mpsc::channel();
    let watcher = Watcher::start(library, inventory, config, move |event| {
        let _ = sender.send(event);
        ControlFlow::Continue(())
    });
    (watcher.expect("the watcher starts"), receiver)
}

#[track_caller]
fn next_changes(events: &mpsc::Receiver<NodeEvent>) -> Vec<Change> {
    match events.recv_timeout(SOON) {
        Ok(NodeEvent::Changed { changes, .. }) => changes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_gpu_that_is_lost_and_comes_back_is_told_and_its_events_are_again() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(3));
    let uuid = simulated.node.gpus()[1].uuid.clone();
    let (_watcher, events) = watch(&simulated);
    simulated.node.lose(1).unwrap();
    let changes = next_changes(&events);
    assert!(
        matches!(&changes[..], [Change::Lost { gpu, .. }] if gpu.as_str() == uuid),
        "{changes:?}"
    );

    simulated.node.restore(1).unwrap();
    match events.recv_timeout(SOON).unwrap() {
        NodeEvent::Changed { changes, inventory } => {
            assert!(
                matches!(&changes[..], [Change::Recovered { gpu }] if gpu.as_str() == uuid),
                "{changes:?}"
            );
            assert_eq!(inventory.gpus.len(), 3);
        }
        other => panic!("{other:?}"),
    }
    // The new registration may still be on its way: ask until it is there.
    let deadline = Instant::now() + SOON;
    loop {
        assert!(Instant::now() < deadline, "no event of the recovered GPU");
        simulated.node.inject_xid(1, 79).unwrap();
        match events.recv_timeout(Duration::from_millis(100)) {
            Ok(NodeEvent::Health(event)) => {
                assert_eq!(
                    (event.gpu.as_str(), event.kind),
                    (uuid.as_str(), HealthEventKind::Xid(79))
                );
                break;
            }
            Err(_) => {}
            Ok(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_happened_between_the_callers_reading_and_the_watch_is_told() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let library = Arc::new(simulated.library());
    let mut inventory = library.inventory(&simulated.node.root()).unwrap();
    let gpu = inventory.gpus.pop().unwrap();
    let (sender, events) = mpsc::channel();
    let config = WatchConfig {
        host_root: simulated.node.root(),
        ..WatchConfig::default()
    };
    let _watcher = Watcher::start(library, inventory, config, move |event| {
        let _ = sender.send(event);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(next_changes(&events), [Change::Added { gpu: gpu.uuid }]);
}

#[test]
fn health_events_pass_and_a_node_that_nobody_touches_is_silent() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let (watcher, events) = watch(&simulated);
    assert!(events.recv_timeout(Duration::from_millis(200)).is_err());
    simulated.node.inject_xid(1, 48).unwrap();
    match events.recv_timeout(SOON).unwrap() {
        NodeEvent::Health(event) => assert_eq!(event.kind, HealthEventKind::Xid(48)),
        other => panic!("{other:?}"),
    }
    watcher.stop();
    assert_eq!(events.try_recv().unwrap_err(), mpsc::TryRecvError::Disconnected);
}

#[test]
fn events_of_the_others_are_told_while_a_gpu_hangs() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let (watcher, events) = watch(&simulated);
    simulated.node.hang(0, Duration::from_mins(10)).unwrap();
    std::thread::sleep(Duration::from_millis(200)); // for ten looks, of which one hangs
    simulated.node.inject_xid(1, 79).unwrap();
    match events.recv_timeout(SOON).unwrap() {
        NodeEvent::Health(event) => assert_eq!(event.gpu.as_str(), simulated.node.gpus()[1].uuid),
        other => panic!("{other:?}"),
    }
    watcher.stop();
    simulated.node.restore(0).unwrap();
}

#[test]
fn a_loss_is_told_by_the_wait_that_fails_and_not_at_the_next_look() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let (_watcher, events) = watch_every(&simulated, Duration::from_mins(10));
    simulated.node.lose(0).unwrap();
    let changes = next_changes(&events);
    assert!(
        matches!(&changes[..], [Change::Lost { problem, .. }] if problem.index == 0),
        "{changes:?}"
    );
    // The other GPU's events come on in a new set.
    simulated.node.inject_xid(1, 79).unwrap();
    match events.recv_timeout(SOON).unwrap() {
        NodeEvent::Health(event) => assert_eq!(event.kind, HealthEventKind::Xid(79)),
        other => panic!("{other:?}"),
    }
}

/// What it costs is seen by the log of calls: three for each GPU and one more, every five seconds by default.
#[test]
fn a_look_at_a_node_where_nothing_happens_is_a_handful_of_calls_and_nothing_beside_the_wait() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(2));
    simulated.node.log_calls(true).unwrap();
    let (_watcher, events) = watch(&simulated);
    let deadline = Instant::now() + SOON;
    let calls = loop {
        assert!(events.try_recv().is_err(), "nothing happens");
        let calls = simulated.node.calls().unwrap();
        let functions = calls.into_iter().map(|call| call.function);
        let asked: Vec<_> = functions
            .filter(|function| !function.starts_with("nvmlEventSetWait"))
            .collect();
        if asked
            .iter()
            .filter(|function| *function == "nvmlDeviceGetCount_v2")
            .count()
            > 5
        {
            break asked;
        }
        assert!(Instant::now() < deadline, "only {asked:?}");
        std::thread::yield_now();
    };
    let rounds = calls.chunk_by(|_, next| next != "nvmlDeviceGetCount_v2");
    let rounds = rounds.filter(|round| round[0] == "nvmlDeviceGetCount_v2"); // what is before is NVML's start
    let whole = |round: &&[String]| round.iter().any(|function| function == "nvmlDeviceGetPciInfo_v3");
    let (readings, looks): (Vec<_>, Vec<_>) = rounds.partition(whole);
    assert_eq!(readings.len(), 2, "the test's own, and the watcher's first");
    let of_a_gpu = [
        "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetMigMode",
    ];
    let look = [&["nvmlDeviceGetCount_v2"], &of_a_gpu[..], &of_a_gpu].concat();
    // The last one is still under way.
    for seen in &looks[..looks.len() - 1] {
        assert_eq!(*seen, look);
    }
}
