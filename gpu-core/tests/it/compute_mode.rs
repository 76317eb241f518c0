use gpu_core::{ComputeMode, nvml::Refusal};
use gpu_sim::NodeSpec;

use crate::Simulated;

#[test]
fn a_compute_mode_is_set_and_the_one_before_is_told() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let library = node.library();
    let modes = || -> Vec<_> {
        let inventory = library.inventory(&node.node.root()).unwrap();
        inventory.gpus.iter().map(|gpu| gpu.compute_mode).collect()
    };
    let gpus = library.inventory(&node.node.root()).unwrap().gpus;
    let gpu = &gpus[1].uuid;
    let exclusive = ComputeMode::ExclusiveProcess;
    assert_eq!(library.set_compute_mode(gpu, exclusive).unwrap(), ComputeMode::Default);
    assert_eq!(modes(), [Some(ComputeMode::Default), Some(exclusive)]);
    assert_eq!(library.set_compute_mode(gpu, exclusive).unwrap(), exclusive);
    assert_eq!(library.set_compute_mode(gpu, ComputeMode::Default).unwrap(), exclusive);
    assert_eq!(modes(), [Some(ComputeMode::Default); 2]);

    let refused = library.set_compute_mode(gpu, ComputeMode::Other(7)).unwrap_err();
    assert_eq!(refused.refusal, Refusal::InvalidArgument);
    let other = "GPU-00000000-0000-4000-8000-00000000000f".parse().unwrap();
    let refused = library.set_compute_mode(&other, exclusive).unwrap_err();
    assert_eq!(refused.refusal, Refusal::NotFound);
}
