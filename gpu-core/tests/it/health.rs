use std::{
    ops::ControlFlow,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use gpu_core::{
    ProblemKind,
    nvml::{HealthEvent, HealthEventKind, HealthWatch, Watched},
};
use gpu_sim::NodeSpec;

use crate::Simulated;

const SOON: Duration = Duration::from_secs(10);

fn watch(simulated: &Simulated) -> (HealthWatch, mpsc::Receiver<HealthEvent>) {
    let library = Arc::new(simulated.library());
    let gpus = library
        .inventory(&simulated.node.root())
        .expect("the node is read")
        .gpus;
    let (sender, receiver) = mpsc::channel();
    let watch = HealthWatch::start(library, &gpus, move |watched| {
        if let Watched::Event(event) = watched {
            let _ = sender.send(event);
        }
        ControlFlow::Continue(())
    });
    (watch.expect("the watch starts"), receiver)
}

#[test]
fn an_xid_is_delivered_once_and_names_its_gpu() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(4));
    let (watch, events) = watch(&simulated);
    assert_eq!(watch.problems(), []);
    simulated.node.inject_xid(2, 79).unwrap();
    let event = events.recv_timeout(SOON).unwrap();
    assert_eq!(event.gpu.as_str(), simulated.node.gpus()[2].uuid);
    assert_eq!(event.kind, HealthEventKind::Xid(79));
    assert_eq!((event.gpu_instance, event.compute_instance), (None, None));

    // One that NVML's headers do not know keeps its number.
    simulated.node.inject_xid(0, 4711).unwrap();
    assert_eq!(events.recv_timeout(SOON).unwrap().kind, HealthEventKind::Xid(4711));
    assert!(events.try_recv().is_err());
}

#[test]
fn events_from_before_the_watch_are_not_delivered() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(1));
    simulated.node.inject_xid(0, 48).unwrap();
    let (_watch, events) = watch(&simulated);
    simulated.node.inject_xid(0, 79).unwrap();
    assert_eq!(events.recv_timeout(SOON).unwrap().kind, HealthEventKind::Xid(79));
}

#[test]
fn a_gpu_that_is_lost_before_the_watch_is_listed_and_the_others_are_watched() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let library = Arc::new(simulated.library());
    let gpus = library.inventory(&simulated.node.root()).unwrap().gpus;
    simulated.node.lose(0).unwrap();
    let (sender, events) = mpsc::channel();
    let watch = HealthWatch::start(library, &gpus, move |watched| {
        let _ = sender.send(format!("{watched:?}"));
        ControlFlow::Continue(())
    })
    .unwrap();
    let [problem] = watch.problems() else {
        panic!("{:?}", watch.problems())
    };
    assert_eq!((problem.index, problem.kind), (0, ProblemKind::Lost));
    simulated.node.inject_xid(1, 79).unwrap();
    assert!(events.recv_timeout(SOON).unwrap().contains("Xid(79)"));
}

#[test]
fn a_watch_ends_soon_when_it_is_stopped_or_told_to() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let (watch, events) = watch(&simulated);
    let started = Instant::now();
    watch.stop();
    assert!(
        started.elapsed() < Duration::from_millis(250),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(
        events.try_recv(),
        Err(mpsc::TryRecvError::Disconnected),
        "its callback is gone"
    );
}

#[test]
fn an_event_of_an_instance_names_it() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(1));
    simulated.node.set_mig_mode(0, true).unwrap();
    let made = simulated.node.create_mig(0, "1g.10gb", None).unwrap();
    let (_watch, events) = watch(&simulated);
    simulated.node.inject_xid_of_instance(0, 43, (made.id, 0)).unwrap();
    let event = events.recv_timeout(SOON).unwrap();
    assert_eq!(event.kind, HealthEventKind::Xid(43));
    assert_eq!((event.gpu_instance, event.compute_instance), (Some(made.id), Some(0)));
}
