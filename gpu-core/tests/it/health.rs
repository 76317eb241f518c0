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

#[test]
fn a_gpu_that_is_lost_while_it_is_watched_is_told_once_and_the_others_go_on() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(3));
    let library = Arc::new(simulated.library());
    let gpus = library.inventory(&simulated.node.root()).unwrap().gpus;
    let (sender, told) = mpsc::channel();
    let _watch = HealthWatch::start(library, &gpus, move |watched| {
        let _ = sender.send(watched);
        ControlFlow::Continue(())
    })
    .unwrap();
    // What was there before the loss is not lost with it.
    simulated.node.inject_xid(1, 79).unwrap();
    simulated.node.lose(1).unwrap();
    let mut seen = Vec::new();
    while !matches!(seen.last(), Some(Watched::Lost(_))) {
        seen.push(told.recv_timeout(SOON).unwrap());
    }
    let [Watched::Event(event), Watched::Lost(lost)] = seen.as_slice() else {
        panic!("{seen:?}")
    };
    assert_eq!((event.kind, &event.gpu), (HealthEventKind::Xid(79), lost));
    assert_eq!(lost.as_str(), simulated.node.gpus()[1].uuid);

    simulated.node.inject_xid(2, 48).unwrap();
    match told.recv_timeout(SOON).unwrap() {
        Watched::Event(event) => assert_eq!(event.kind, HealthEventKind::Xid(48)),
        other => panic!("{other:?}"),
    }
    assert!(
        told.recv_timeout(Duration::from_millis(700)).is_err(),
        "it is told once"
    );
}

#[test]
fn a_gpu_that_hangs_while_its_events_are_registered_is_cut_off_and_then_left_out() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(3));
    let library = Arc::new(simulated.library().with_call_timeout(Duration::from_millis(500)));
    let gpus = library.inventory(&simulated.node.root()).unwrap().gpus;
    simulated.node.hang(1, Duration::from_mins(10)).unwrap();
    let started = Instant::now();
    let error = HealthWatch::start(Arc::clone(&library), &gpus, |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(error, gpu_core::Error::Hung { .. }), "{error:?}");
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    let stuck: Vec<_> = library.stuck_calls().iter().map(|stuck| stuck.index).collect();
    assert_eq!(stuck, [Some(1)]);

    let (sender, told) = mpsc::channel();
    let watch = HealthWatch::start(Arc::clone(&library), &gpus, move |watched| {
        let _ = sender.send(watched);
        ControlFlow::Continue(())
    })
    .unwrap();
    let problems: Vec<_> = watch
        .problems()
        .iter()
        .map(|problem| (problem.index, problem.kind))
        .collect();
    assert_eq!(problems, [(1, ProblemKind::Hung)]);
    simulated.node.inject_xid(2, 79).unwrap();
    assert!(matches!(told.recv_timeout(SOON), Ok(Watched::Event(_))));
    assert_eq!(library.stuck_calls().len(), 1, "it was not asked again");
    simulated.node.restore(1).unwrap();
    let deadline = Instant::now() + SOON;
    while !library.stuck_calls().is_empty() {
        assert!(Instant::now() < deadline, "the call has not returned");
        std::thread::yield_now();
    }
}
