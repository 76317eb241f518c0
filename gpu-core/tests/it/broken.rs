//! Nodes and GPUs that do not answer as they should.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use gpu_core::{Error, ProblemKind};
use gpu_sim::NodeSpec;

use crate::{Simulated, open};

#[test]
fn a_lost_gpu_is_a_problem_and_the_others_are_read() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(4));
    simulated.node.lose(1).unwrap();
    let library = simulated.library();
    let inventory = library.inventory(&simulated.node.root()).unwrap();
    let indices: Vec<_> = inventory.gpus.iter().map(|gpu| gpu.index).collect();
    assert_eq!(indices, [0, 2, 3], "the lost GPU keeps its index");
    let [problem] = inventory.problems.as_slice() else {
        panic!("{:?}", inventory.problems)
    };
    assert_eq!((problem.index, problem.kind), (1, ProblemKind::Lost));
    assert!(
        problem
            .to_string()
            .starts_with("GPU 1 is lost: nvmlDeviceGetHandleByIndex_v2: "),
        "{problem}"
    );

    simulated.node.restore(1).unwrap();
    let inventory = library.inventory(&simulated.node.root()).unwrap();
    assert_eq!((inventory.gpus.len(), inventory.problems.len()), (4, 0));
}

#[test]
fn a_node_without_gpus_is_an_empty_inventory() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(0));
    let inventory = simulated.library().inventory(&simulated.node.root()).unwrap();
    assert_eq!((inventory.gpus.len(), inventory.problems.len()), (0, 0));
    assert!(inventory.driver.is_some());
}

#[test]
fn a_driver_of_another_version_than_the_library_is_named_as_such() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(1));
    simulated.node.set_init_error(Some(18)).unwrap();
    let error = open(simulated.node.library()).unwrap_err();
    assert!(matches!(error, Error::VersionMismatch { .. }), "{error:?}");
    assert!(
        error.to_string().starts_with("driver/library version mismatch: "),
        "{error}"
    );
    assert!(error.is_transient());

    simulated.node.set_init_error(None).unwrap();
    assert!(open(simulated.node.library()).is_ok());
}

#[test]
fn a_driver_that_is_not_loaded_is_named_as_such() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(1));
    simulated.node.set_init_error(Some(9)).unwrap();
    let error = open(simulated.node.library()).unwrap_err();
    assert!(matches!(error, Error::DriverNotLoaded { .. }), "{error:?}");
}

#[test]
fn a_truncated_library_is_not_loaded() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let path = simulated.node.folder().join("truncated.so");
    let bytes = fs::read(simulated.node.library()).unwrap();
    for length in [0, 10, 1000, 5000, 100_000] {
        fs::write(&path, &bytes[..length]).unwrap();
        let error = open(path.clone()).unwrap_err();
        let expected = matches!(error, Error::LibraryTruncated { .. } | Error::LibraryUnusable { .. });
        assert!(expected, "{length} bytes: {error:?}");
    }
}

#[test]
fn a_numa_node_that_is_no_number_costs_that_value_alone() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let file = simulated.node.root().join("sys/bus/pci/devices/0000:1a:00.0/numa_node");
    fs::remove_file(&file).unwrap(); // as in the kernel, only root may write to it
    fs::write(&file, "zero\n").unwrap();
    let inventory = simulated.library().inventory(&simulated.node.root()).unwrap();
    assert_eq!(
        inventory.gpus.iter().map(|gpu| gpu.numa_node).collect::<Vec<_>>(),
        [None, Some(0)]
    );
    let [problem] = inventory.problems.as_slice() else {
        panic!("{:?}", inventory.problems)
    };
    assert_eq!(problem.kind, ProblemKind::Incomplete);
    assert_eq!(problem.message, "`zero` is not a number");
}

#[test]
fn a_gpu_that_hangs_costs_its_own_values_and_one_thread() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(3));
    // Long enough for a busy machine: only the one that hangs takes longer.
    let library = simulated.library().with_call_timeout(Duration::from_secs(2));
    simulated.node.hang(1, Duration::from_mins(10)).unwrap();
    let root = simulated.node.root();
    let started = Instant::now();
    for _ in 0..3 {
        let inventory = library.inventory(&root).unwrap();
        let indices: Vec<_> = inventory.gpus.iter().map(|gpu| gpu.index).collect();
        assert_eq!(indices, [0, 2]);
        let [problem] = inventory.problems.as_slice() else {
            panic!("{:?}", inventory.problems)
        };
        assert_eq!((problem.index, problem.kind), (1, ProblemKind::Hung));
        assert!(problem.call.starts_with("nvmlDevice"), "{problem}");
        assert!(problem.message.starts_with("has not returned for "), "{problem}");
        // However often it is read, one thread is stuck.
        let stuck: Vec<_> = library.stuck_calls().iter().map(|stuck| stuck.index).collect();
        assert_eq!(stuck, [Some(1)]);
    }
    assert!(started.elapsed() >= Duration::from_secs(2));
    assert_eq!(
        library.usage(&root).unwrap().problems.len(),
        1,
        "usage does not wait either"
    );

    simulated.node.restore(1).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !library.stuck_calls().is_empty() {
        assert!(Instant::now() < deadline, "the call has not returned");
        thread::sleep(Duration::from_millis(10));
    }
    let inventory = library.inventory(&root).unwrap();
    assert_eq!((inventory.gpus.len(), inventory.problems.len()), (3, 0));
}

#[test]
fn a_gpu_that_may_not_be_read_is_a_problem_and_the_others_are_read() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(2));
    simulated.node.deny(0, true).unwrap();
    let inventory = simulated.library().inventory(&simulated.node.root()).unwrap();
    assert_eq!(inventory.gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>(), [1]);
    let [problem] = inventory.problems.as_slice() else {
        panic!("{:?}", inventory.problems)
    };
    assert_eq!((problem.index, problem.kind), (0, ProblemKind::NoPermission));
}

#[test]
fn memory_errors_that_could_not_be_corrected_are_counted() {
    let simulated = Simulated::new(&NodeSpec::new("h100").gpus(1));
    simulated.node.inject_ecc(0, 5, 2).unwrap();
    let inventory = simulated.library().inventory(&simulated.node.root()).unwrap();
    let ecc = inventory.gpus[0].ecc.unwrap();
    assert_eq!(
        (ecc.uncorrected_since_load, ecc.uncorrected_in_life),
        (Some(2), Some(2))
    );
}
