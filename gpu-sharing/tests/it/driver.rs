//! Plans carried out through NVML on a simulated GPU.

use std::{collections::BTreeMap, path::Path};

use gpu_core::{GpuUuid, Inventory, Usage, nvml::Library, nvml::LibrarySearch};
use gpu_sharing::mig::{Compute, Demand, Held, PlanError, Profile, Reason, Wanted, fleet, plan_node};
use gpu_sim::{Load, Node, NodeSpec};
use proptest::{prelude::*, sample::Index, test_runner::TestRunner};

struct Driver {
    node: Node,
    library: Library,
}

impl Driver {
    fn new(folder: &Path, profile: &str) -> Self {
        let node = Node::create(&NodeSpec::new(profile).gpus(1), folder).expect("a node");
        let search = LibrarySearch {
            library: Some(node.library()),
            ..LibrarySearch::default()
        };
        let library = Library::open(&search).expect("its library");
        Self { node, library }
    }

    fn read(&self) -> (Inventory, Usage) {
        let root = self.node.root();
        (
            self.library.inventory(&root).expect("it is read"),
            self.library.usage(&root).expect("it is read"),
        )
    }

    fn held(&self) -> Vec<Held> {
        let (inventory, usage) = self.read();
        let fleet = fleet(&inventory, &usage).expect("a legal state");
        fleet.gpus()[0].instances.clone()
    }

    /// Makes the GPU what is wanted; the plan's own refusal is none of the driver's.
    fn apply(&self, wanted: &Wanted) -> Result<usize, Reason> {
        let (inventory, usage) = self.read();
        let gpu: GpuUuid = inventory.gpus[0].uuid.clone();
        let planned = plan_node(&inventory, &usage, &BTreeMap::from([(gpu, wanted.clone())]));
        let planned = planned.map_err(|mut refused| refused.remove(0).reason)?;
        let steps = planned.steps(&inventory).expect("made for this state");
        let checked = steps.check(&inventory).expect("the driver's own rules allow it");
        self.library.apply(&checked).expect("the driver does it");
        let after = planned.plan.after(&planned.fleet).expect("made for this state");
        let mut expected: Vec<_> = after.gpus()[0]
            .instances
            .iter()
            .map(|held| (held.instance.clone(), sizes(held)))
            .collect();
        let mut found: Vec<_> = self
            .held()
            .iter()
            .map(|held| (held.instance.clone(), sizes(held)))
            .collect();
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "the planned state");
        Ok(checked.steps().len())
    }

    fn clear(&self) {
        self.node.unload(0, None).expect("it can be cleared");
        let empty = Wanted::Instances(Demand::default());
        self.apply(&empty).expect("nothing is in use");
    }
}

fn sizes(held: &Held) -> Vec<u32> {
    let mut sizes: Vec<_> = held.parts().iter().map(|part| part.slices).collect();
    sizes.sort_unstable();
    sizes
}

/// What is asked for: profiles and compute slices by chance, and how many.
fn demand(profiles: &[Profile], asked: &[(Index, u32, u32)]) -> Demand {
    let one = |(profile, slices, n): &(Index, u32, u32)| {
        let profile = profile.get(profiles);
        let slices = if *slices == 0 {
            profile.slices()
        } else {
            slices.min(&profile.slices()).to_owned()
        };
        (format!("{slices}c.{profile}").parse().expect("a profile"), *n)
    };
    asked.iter().map(one).collect()
}

fn carried_out(profile: &str, cases: u32) {
    let folder = tempfile::tempdir().expect("a folder");
    let driver = Driver::new(&folder.path().join("node"), profile);
    let (inventory, _) = driver.read();
    let names = inventory.gpus[0].mig.as_ref().expect("it has MIG").profiles.iter();
    let profiles: Vec<Profile> = names
        .map(|profile| profile.name.to_string().parse().expect("a profile"))
        .collect();
    let asked = || prop::collection::vec((any::<Index>(), 0_u32..4, 1_u32..4), 0..3);
    let mut runner = TestRunner::new(ProptestConfig {
        cases,
        ..ProptestConfig::default()
    });
    let run = runner.run(&(asked(), asked(), any::<u32>()), |(first, second, used)| {
        driver.clear();
        if driver.apply(&Wanted::Instances(demand(&profiles, &first))).is_err() {
            return Ok(()); // more than fits
        }
        // Processes on some of what was made.
        let mut pinned = Vec::new();
        for (at, mig) in driver.node.mig(0).expect("the state").iter().enumerate() {
            for (compute, _, uuid) in &mig.devices {
                if used >> ((at * 7 + *compute as usize) % 32) & 3 == 3 {
                    let load = Load {
                        instance: Some((mig.id, *compute)),
                        ..Load::default()
                    };
                    driver.node.load(0, load).expect("it runs");
                    pinned.push(uuid.clone());
                }
            }
        }
        let wanted = Wanted::Instances(demand(&profiles, &second));
        match driver.apply(&wanted) {
            Ok(_) => {
                let devices = driver
                    .node
                    .mig(0)
                    .expect("the state")
                    .into_iter()
                    .flat_map(|mig| mig.devices);
                let left: Vec<_> = devices.map(|(_, _, uuid)| uuid).collect();
                prop_assert!(
                    pinned.iter().all(|uuid| left.contains(uuid)),
                    "what was in use is there"
                );
                prop_assert_eq!(driver.apply(&wanted).expect("it is so"), 0, "once more is nothing");
            }
            Err(Reason::Plan(error)) => {
                let about_use = matches!(error, PlanError::Pinned { .. } | PlanError::Blocked { .. });
                prop_assert!(!about_use || !pinned.is_empty(), "{}", error);
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        }
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{profile}: {error}"));
}

#[test]
fn plans_give_the_planned_state_keep_what_is_in_use_and_ask_for_nothing_twice() {
    carried_out("h100", 150);
    carried_out("a30", 60);
    carried_out("rtx-pro-6000", 60);
}

#[test]
fn a_layout_with_places_is_restored_from_any_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let driver = Driver::new(&folder.path().join("node"), "h100");
    let demand = |text: &str| -> Wanted {
        let profiles = text.split(' ').map(|profile| (profile.parse().expect("a profile"), 1));
        Wanted::Instances(profiles.collect())
    };
    driver
        .apply(&demand("1g.10gb 1c.3g.40gb 2c.3g.40gb 2g.20gb"))
        .expect("it fits");
    let kept = driver.held();
    assert!(kept.iter().any(|held| held.compute != Compute::Whole));
    driver.apply(&demand("4g.40gb 1g.20gb")).expect("it fits");
    let steps = driver.apply(&Wanted::Exactly(kept.clone())).expect("it fits");
    assert!(steps > 0);
    assert_eq!(driver.held(), kept);
    assert_eq!(driver.apply(&Wanted::Exactly(kept)).expect("it is so"), 0);
}
