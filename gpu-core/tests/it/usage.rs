use gpu_core::{GpuUsage, ProcessKind};
use gpu_sim::NodeSpec;

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
