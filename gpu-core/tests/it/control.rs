//! Dividing simulated GPUs, and putting back what does not work out.

use gpu_core::{
    GpuUuid, Inventory, Mig, Placement, Plan, Step,
    nvml::{Done, Library, Refusal},
};
use gpu_sim::NodeSpec;

use crate::Simulated;

struct Bench {
    simulated: Simulated,
    library: Library,
}

impl Bench {
    fn new(mode: bool) -> Self {
        let simulated = Simulated::new(&NodeSpec::new("h100").gpus(2));
        simulated.node.set_mig_mode(0, mode).expect("the board has MIG");
        let library = simulated.library();
        Self { simulated, library }
    }

    fn inventory(&self) -> Inventory {
        let inventory = self.library.inventory(&self.simulated.node.root());
        inventory.expect("the node is read")
    }

    fn mig(&self) -> Mig {
        self.inventory().gpus[0].mig.clone().expect("the board has MIG")
    }

    fn gpu(&self) -> GpuUuid {
        self.simulated.node.gpus()[0].uuid.parse().expect("it is a UUID")
    }

    fn create(&self, profile: &str, start: u32, size: u32) -> Step {
        Step::CreateGpuInstance {
            gpu: self.gpu(),
            profile: profile.parse().expect("it is a profile"),
            placement: Placement { start, size },
        }
    }

    fn compute(&self, at: (u32, u32), slices: u32, start: Option<u32>) -> Step {
        Step::CreateComputeInstance {
            gpu: self.gpu(),
            gpu_instance_at: Placement {
                start: at.0,
                size: at.1,
            },
            slices,
            start,
        }
    }

    /// The profiles and first slices of GPU instances and the sizes of their compute instances.
    fn layout(&self) -> Vec<(String, u32, Vec<u32>)> {
        let instances = self.mig().gpu_instances;
        let describe = |instance: gpu_core::GpuInstance| {
            let name = instance.profile.map(|profile| profile.to_string()).unwrap_or_default();
            let mut sizes: Vec<_> = instance
                .compute_instances
                .iter()
                .map(|compute| compute.placement.size)
                .collect();
            sizes.sort_unstable();
            (name, instance.placement.start, sizes)
        };
        instances.into_iter().map(describe).collect()
    }
}

fn layout(expected: &[(&str, u32, &[u32])]) -> Vec<(String, u32, Vec<u32>)> {
    let owned = |(name, start, sizes): &(&str, u32, &[u32])| ((*name).to_owned(), *start, sizes.to_vec());
    expected.iter().map(owned).collect()
}

#[test]
fn a_plan_turns_the_mode_on_and_makes_instances_where_it_says() {
    let bench = Bench::new(false);
    let steps = vec![
        Step::SetMode {
            gpu: bench.gpu(),
            enabled: true,
        },
        bench.create("3g.40gb", 4, 4),
        bench.compute((4, 4), 2, Some(0)),
        bench.compute((4, 4), 1, None),
        bench.create("1g.10gb+me", 2, 1),
        bench.compute((2, 1), 1, None),
    ];
    let plan = Plan { steps }.check(&bench.inventory()).unwrap();
    let done = bench.library.apply(&plan).unwrap();
    assert_eq!(
        bench.layout(),
        layout(&[("1g.10gb+me", 2, &[1]), ("3g.40gb", 4, &[1, 2])])
    );

    // What was made is what is read.
    let mig = bench.mig();
    let made: Vec<_> = done
        .iter()
        .filter_map(|done| match done {
            Done::ComputeInstance { uuid, .. } => Some(uuid.clone().expect("the driver knows its UUID")),
            _ => None,
        })
        .collect();
    let mut names: Vec<_> = made
        .iter()
        .map(|uuid| {
            mig.devices
                .iter()
                .find(|device| device.uuid == *uuid)
                .expect("it is read")
        })
        .map(|device| device.profile.as_ref().expect("it has a profile").to_string())
        .collect();
    names.sort();
    assert_eq!(names, ["1c.3g.40gb", "1g.10gb+me", "2c.3g.40gb"]);
    assert!(!bench.inventory().gpus[1].mig_enabled(), "the other GPU is not touched");
}

#[test]
fn instances_are_destroyed_from_the_inside_out() {
    let bench = Bench::new(true);
    let made = bench.simulated.node.create_mig(0, "2g.20gb", Some(2)).unwrap();
    bench.simulated.node.create_mig(0, "1g.10gb", Some(0)).unwrap();
    let steps = vec![
        Step::DestroyComputeInstance {
            gpu: bench.gpu(),
            gpu_instance: made.id,
            compute_instance: 0,
        },
        Step::DestroyGpuInstance {
            gpu: bench.gpu(),
            gpu_instance: made.id,
        },
    ];
    let plan = Plan { steps }.check(&bench.inventory()).unwrap();
    assert_eq!(bench.library.apply(&plan).unwrap(), [Done::Nothing, Done::Nothing]);
    assert_eq!(bench.layout(), layout(&[("1g.10gb", 0, &[1])]));
}

#[test]
fn what_a_failed_plan_destroyed_is_made_again() {
    let bench = Bench::new(true);
    let first = bench.simulated.node.create_mig(0, "2g.20gb", Some(0)).unwrap();
    let before = bench.inventory();
    let steps = vec![
        Step::DestroyComputeInstance {
            gpu: bench.gpu(),
            gpu_instance: first.id,
            compute_instance: 0,
        },
        Step::DestroyGpuInstance {
            gpu: bench.gpu(),
            gpu_instance: first.id,
        },
        bench.create("3g.40gb", 0, 4),
        bench.compute((0, 4), 3, None),
        bench.create("1g.10gb", 6, 1),
    ];
    let plan = Plan { steps }.check(&before).unwrap();
    // Somebody else is faster.
    bench.simulated.node.create_mig(0, "1g.10gb", Some(6)).unwrap();
    let error = bench.library.apply(&plan).unwrap_err();
    assert_eq!(
        (error.number, error.refused.refusal),
        (4, Refusal::InsufficientResources)
    );
    assert_eq!(error.left, []);
    let message = error.to_string();
    assert!(message.contains("cannot create 1g.10gb at 6 of GPU-"), "{message}");
    assert!(message.ends_with("all 4 steps before it were taken back"), "{message}");
    assert_eq!(bench.layout(), layout(&[("2g.20gb", 0, &[2]), ("1g.10gb", 6, &[1])]));
}

#[test]
fn each_gpu_is_put_back_on_its_own() {
    let bench = Bench::new(false);
    let steps = vec![
        Step::SetMode {
            gpu: bench.gpu(),
            enabled: true,
        },
        bench.create("1g.10gb", 0, 1),
        Step::SetMode {
            gpu: bench.simulated.node.gpus()[1].uuid.parse().unwrap(),
            enabled: true,
        },
    ];
    let plan = Plan { steps }.check(&bench.inventory()).unwrap();
    bench.simulated.node.lose(1).unwrap();
    let error = bench.library.apply(&plan).unwrap_err();
    assert_eq!((error.number, error.refused.refusal), (2, Refusal::GpuLost));
    assert_eq!(error.left, [], "the other GPU can be put back");
    assert!(!bench.mig().enabled);

    // What was so before the step is not undone by taking it back.
    let steps = vec![
        Step::SetMode {
            gpu: bench.gpu(),
            enabled: true,
        },
        bench.create("7g.80gb", 0, 8),
    ];
    bench.simulated.node.restore(1).unwrap();
    let plan = Plan { steps }.check(&bench.inventory()).unwrap();
    bench.simulated.node.set_mig_mode(0, true).unwrap();
    bench.simulated.node.create_mig(0, "1g.10gb", Some(3)).unwrap();
    let error = bench.library.apply(&plan).unwrap_err();
    assert_eq!(
        (error.number, error.refused.refusal),
        (1, Refusal::InsufficientResources)
    );
    // The mode was on already when the step came to it: taking that back is leaving it on.
    assert_eq!(error.left, []);
    assert_eq!(bench.layout(), layout(&[("1g.10gb", 3, &[1])]));
}

#[test]
fn an_instance_that_is_not_where_the_plan_says_is_not_touched() {
    let bench = Bench::new(true);
    let first = bench.simulated.node.create_mig(0, "1g.10gb", Some(0)).unwrap();
    let plan = Plan {
        steps: vec![
            Step::DestroyComputeInstance {
                gpu: bench.gpu(),
                gpu_instance: first.id,
                compute_instance: 0,
            },
            bench.compute((0, 1), 1, None),
        ],
    };
    let plan = plan.check(&bench.inventory()).unwrap();
    bench.simulated.node.destroy_mig(0, first.id).unwrap();
    let error = bench.library.apply(&plan).unwrap_err();
    assert_eq!((error.number, error.refused.refusal), (0, Refusal::NotFound));
    assert_eq!(bench.layout(), []);
}

#[test]
fn a_simulated_driver_of_each_generation_takes_the_steps() {
    for driver in ["470", "535", "550", "580", "610"] {
        let simulated = Simulated::new(&NodeSpec::new("h100").gpus(1).driver(driver));
        simulated.node.set_mig_mode(0, true).unwrap();
        let library = simulated.library();
        let bench = Bench { simulated, library };
        let steps = vec![bench.create("2g.20gb", 2, 2), bench.compute((2, 2), 2, None)];
        let plan = Plan { steps }.check(&bench.inventory()).unwrap();
        bench.library.apply(&plan).unwrap();
        assert_eq!(bench.layout(), layout(&[("2g.20gb", 2, &[2])]), "{driver}");
    }
}
