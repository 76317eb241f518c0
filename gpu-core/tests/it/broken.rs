//! Nodes and GPUs that do not answer as they should.

use std::fs;

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
