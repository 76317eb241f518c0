use std::collections::BTreeMap;

use gpu_sharing::mig::{
    Compute, ComputeChange, Cost, Demand, Fleet, GpuState, Held, Instance, Mode, Part, PlanError, Wanted, plan, reshape,
};
use proptest::prelude::*;

use crate::{
    brute,
    fleets::{Case, cases, demands, divided, divided_sizes, divided_states, gpu, in_brute_words, neighbours, occupied},
};

fn wanted(gpu: &str, profiles: &[(&str, u32)]) -> BTreeMap<String, Wanted> {
    let demand = profiles
        .iter()
        .map(|(profile, n)| (profile.parse().expect("a profile"), *n))
        .collect();
    BTreeMap::from([(gpu.to_owned(), Wanted::Instances(demand))])
}

#[track_caller]
fn check(gpu: GpuState, profiles: &[(&str, u32)], expected: Result<&str, &str>) {
    let name = gpu.name.clone();
    let fleet = Fleet::new([gpu]).expect("a legal state");
    let steps = match reshape(&fleet, &wanted(&name, profiles)) {
        Ok(plan) => {
            let checked = plan.check(&fleet).expect("made for this state");
            Ok(checked
                .steps()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "))
        }
        Err(error) => Err(error.to_string()),
    };
    assert_eq!(steps.as_deref().map_err(String::as_str), expected);
}

#[test]
fn what_is_there_already_stays() {
    let seven: Vec<_> = (0..7).map(|start| ("1g.10gb", start, start == 3)).collect();
    check(
        gpu("gpu-0", "H100-80GB", Mode::Enabled, &seven),
        &[("1g.10gb", 7)],
        Ok(""),
    );
    check(
        gpu(
            "gpu-0",
            "H100-80GB",
            Mode::Enabled,
            &[("1g.10gb", 0, true), ("1g.10gb", 6, false)],
        ),
        &[("1g.10gb", 1), ("3g.40gb", 1)],
        Ok("destroy 1g.10gb@6 on gpu-0, create 3g.40gb@4 on gpu-0"),
    );
}

#[test]
fn the_first_place_is_taken_where_all_are_as_good() {
    let empty = || gpu("gpu-0", "A30-24GB", Mode::Enabled, &[]);
    check(empty(), &[("1g.6gb", 1)], Ok("create 1g.6gb@0 on gpu-0"));
    check(
        empty(),
        &[("1g.6gb", 4)],
        Ok("create 1g.6gb@0 on gpu-0, create 1g.6gb@1 on gpu-0, create 1g.6gb@2 on gpu-0, create 1g.6gb@3 on gpu-0"),
    );
}

#[test]
fn mig_mode_is_switched_on_before_instances_are_made() {
    check(
        gpu("gpu-0", "A30-24GB", Mode::Disabled, &[]),
        &[("4g.24gb", 1)],
        Ok("enable MIG on gpu-0, create 4g.24gb@0 on gpu-0"),
    );
}

#[test]
fn a_refusal_names_the_gpu_the_profile_and_what_is_short() {
    let empty = || gpu("gpu-0", "H100-80GB", Mode::Enabled, &[]);
    check(
        empty(),
        &[("1g.10gb", 4), ("2g.20gb", 1), ("3g.40gb", 1)],
        Err(
            "2 of 4 × `1g.10gb` do not fit beside 1 × 2g.20gb, 1 × 3g.40gb on `gpu-0`: 2 free blocks of 1 slot are short",
        ),
    );
    check(
        empty(),
        &[("1g.5gb", 1)],
        Err("no GPU offers `1g.5gb` (there are: H100-80GB)"),
    );
    check(
        gpu("gpu-0", "H100-80GB", Mode::Enabled, &[("1g.10gb", 5, true)]),
        &[("1g.10gb", 2), ("3g.40gb", 1), ("2g.20gb", 1)],
        Err(
            "1 of 1 × `2g.20gb` do not fit beside 1 × 3g.40gb on `gpu-0`: 1 free block of 2 slots is short, because of instances \
             in use: 1g.10gb@5",
        ),
    );
    check(
        gpu(
            "gpu-0",
            "H100-80GB",
            Mode::Enabled,
            &[("3g.40gb", 4, true), ("1g.10gb", 0, true), ("1g.10gb", 1, true)],
        ),
        &[("3g.40gb", 1), ("1g.10gb", 1)],
        Err("`1g.10gb@0` on GPU `gpu-0` is in use, and the configuration has no place for it"),
    );
    check(
        gpu("gpu-0", "H100-80GB", Mode::Enabled, &[("1g.10gb", 5, true)]),
        &[("3g.40gb", 1)],
        Err("`1g.10gb@5` on GPU `gpu-0` is in use, and the configuration has no place for it"),
    );
}

#[test]
fn switching_off_destroys_what_is_idle_and_spares_what_is_not() {
    let off = BTreeMap::from([("gpu-0".to_owned(), Wanted::Disabled)]);
    let idle = Fleet::new([gpu("gpu-0", "A30-24GB", Mode::Enabled, &[("2g.12gb", 0, false)])]).expect("legal");
    let steps = reshape(&idle, &off)
        .expect("nobody uses it")
        .check(&idle)
        .expect("fresh");
    let steps: Vec<_> = steps.steps().iter().map(ToString::to_string).collect();
    assert_eq!(steps, ["destroy 2g.12gb@0 on gpu-0", "disable MIG on gpu-0"]);
    let used = Fleet::new([gpu("gpu-0", "A30-24GB", Mode::Enabled, &[("2g.12gb", 0, true)])]).expect("legal");
    assert!(matches!(reshape(&used, &off), Err(PlanError::Pinned { .. })));
}

#[test]
fn a_plan_is_refused_once_an_instance_it_destroys_is_in_use() {
    let before = Fleet::new([gpu("gpu-0", "A30-24GB", Mode::Enabled, &[("2g.12gb", 0, false)])]).expect("legal");
    let now = Fleet::new([gpu("gpu-0", "A30-24GB", Mode::Enabled, &[("2g.12gb", 0, true)])]).expect("legal");
    let plan = reshape(&before, &wanted("gpu-0", &[("4g.24gb", 1)])).expect("it is idle");
    assert!(plan.check(&before).is_ok());
    let stale = plan.check(&now).expect_err("in use");
    assert_eq!(
        stale.to_string(),
        "the plan is out of date for GPU `gpu-0`: `2g.12gb@0` is in use"
    );
}

#[test]
fn mig_mode_is_not_switched_off_over_an_instance_that_came_since() {
    let idle = ("2g.12gb", 0, false);
    let before = Fleet::new([gpu("gpu-0", "A30-24GB", Mode::Enabled, &[idle])]).expect("legal");
    let now = Fleet::new([gpu("gpu-0", "A30-24GB", Mode::Enabled, &[idle, ("1g.6gb", 2, false)])]).expect("legal");
    let off = BTreeMap::from([("gpu-0".to_owned(), Wanted::Disabled)]);
    let plan = reshape(&before, &off).expect("it is idle");
    assert!(plan.check(&before).is_ok());
    assert_eq!(
        plan.check(&now).expect_err("it has another").to_string(),
        "the plan is out of date for GPU `gpu-0`: it has instances that the plan does not destroy"
    );
}

#[test]
fn a_gpu_that_is_not_available_is_neither_looked_at_nor_changed() {
    let mut broken = gpu("gpu-0", "A30-24GB", Mode::Unavailable, &[]);
    let other = gpu("gpu-2", "H100-80GB", Mode::Unavailable, &[]);
    broken.instances = gpu("gpu-0", "H100-80GB", Mode::Enabled, &[("7g.80gb", 0, false)]).instances;
    let fleet =
        Fleet::new([broken, gpu("gpu-1", "A30-24GB", Mode::Enabled, &[])]).expect("its instances do not matter");
    let demand = |n| [("4g.24gb".parse().expect("a profile"), n)].into_iter().collect();
    let made = plan(&fleet, &demand(1)).expect("the other one has room");
    assert_eq!(
        made.changes
            .iter()
            .map(|change| change.gpu.as_str())
            .collect::<Vec<_>>(),
        ["gpu-1"]
    );
    assert_eq!(
        plan(&fleet, &demand(2)).expect_err("one is not available").to_string(),
        "1 of 2 × `4g.24gb` do not fit on 2 GPUs: 1 free block of 4 slots is short"
    );
    let with_other = Fleet::new(fleet.gpus().iter().cloned().chain([other])).expect("it is not looked at");
    let demand = [("7g.80gb".parse().expect("a profile"), 1)].into_iter().collect();
    assert_eq!(
        plan(&with_other, &demand).expect_err("not available").to_string(),
        "no GPU offers `7g.80gb` (there are: A30-24GB, H100-80GB)"
    );
    let unavailable = reshape(&fleet, &wanted("gpu-0", &[("4g.24gb", 1)])).expect_err("it may not be changed");
    assert_eq!(unavailable.to_string(), "GPU `gpu-0` is not available for MIG");
    assert_eq!(
        reshape(&fleet, &wanted("gpu-7", &[])).expect_err("unknown").to_string(),
        "there is no GPU `gpu-7`"
    );
}

#[test]
fn impossible_states_are_refused_with_the_gpu() {
    let mut twice = gpu("gpu-0", "A30-24GB", Mode::Enabled, &[("2g.12gb", 0, false)]);
    twice.instances.push(twice.instances[0].clone());
    let refused = |gpus: Vec<GpuState>| Fleet::new(gpus).expect_err("impossible");
    assert_eq!(
        refused(vec![twice.clone()]).to_string(),
        "the instances of GPU `gpu-0` are not possible"
    );
    assert_eq!(refused(vec![twice.clone()]).gpu(), "gpu-0");
    twice.instances.clear();
    assert_eq!(
        refused(vec![twice.clone(), twice]).to_string(),
        "GPU `gpu-0` is listed twice"
    );
    let mut off = gpu("gpu-0", "A30-24GB", Mode::Enabled, &[("2g.12gb", 0, false)]);
    off.mode = Mode::Disabled;
    assert_eq!(
        refused(vec![off]).to_string(),
        "GPU `gpu-0` has instances although its MIG mode is off"
    );
}

#[test]
fn compute_instances_share_gpu_instances_also_one_that_is_in_use() {
    #[track_caller]
    fn check(instances: Vec<Held>, demand: &[(&str, u32)], expected: Result<&str, &str>) {
        let mut gpu = gpu("gpu-0", "H100-80GB", Mode::Enabled, &[]);
        gpu.instances = instances;
        let fleet = Fleet::new([gpu]).expect("a legal state");
        let demand = demand
            .iter()
            .map(|(profile, n)| (profile.parse().expect("a profile"), *n));
        let steps = match plan(&fleet, &demand.collect()) {
            Ok(plan) => {
                let steps = plan.check(&fleet).expect("made for this state").steps().to_vec();
                Ok(steps.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
            }
            Err(error) => Err(error.to_string()),
        };
        assert_eq!(steps.as_deref().map_err(String::as_str), expected);
    }
    check(
        Vec::new(),
        &[("1c.3g.40gb", 2), ("2c.3g.40gb", 1)],
        Ok("create 3g.40gb@0 on gpu-0, divided into 1c, create 3g.40gb@4 on gpu-0, divided into 2c + 1c"),
    );
    check(
        Vec::new(),
        &[("1c.2g.20gb", 1)],
        Ok("create 2g.20gb@4 on gpu-0, divided into 1c"),
    );
    let mut used = gpu("gpu-0", "H100-80GB", Mode::Enabled, &[("3g.40gb", 4, true)]).instances;
    used[0].compute = Compute::Parts(vec![Part {
        start: 0,
        slices: 1,
        pinned: true,
    }]);
    check(
        used.clone(),
        &[("1c.3g.40gb", 2)],
        Ok("create 1c in 3g.40gb@4 on gpu-0, create 1c in 3g.40gb@4 on gpu-0"),
    );
    // Two slices start at 0 alone, which is in use.
    check(
        used.clone(),
        &[("2c.3g.40gb", 1)],
        Ok("create 3g.40gb@0 on gpu-0, divided into 2c"),
    );
    check(
        used,
        &[("1c.3g.40gb", 6)],
        Err("1 of 6 × `1c.3g.40gb` do not fit on `gpu-0`: 1 free block of 4 slots is short"),
    );
    // One that is divided is no whole one, and making it one costs what is in it.
    let mut idle = gpu("gpu-0", "H100-80GB", Mode::Enabled, &[("3g.40gb", 4, false)]).instances;
    idle[0].compute = Compute::Parts(vec![Part {
        start: 0,
        slices: 2,
        pinned: false,
    }]);
    check(
        idle,
        &[("3g.40gb", 2)],
        Ok("destroy 2c in 3g.40gb@4 on gpu-0, create 3g.40gb@0 on gpu-0, create 3c in 3g.40gb@4 on gpu-0"),
    );
    check(
        Vec::new(),
        &[("5c.7g.80gb", 1)],
        Err("no GPU offers `5c.7g.80gb` (there are: H100-80GB)"),
    );
}

/// What is declared of one GPU costs what the independent search found, or is refused where that found none.
fn agrees(fleet: &Fleet, declared: &Demand) -> Result<(), TestCaseError> {
    let (gpus, counts) = in_brute_words(fleet, declared);
    let least = brute::exactly(&gpus[0], &counts).map(Cost::from);
    let wanted = BTreeMap::from([(fleet.gpus()[0].name.clone(), Wanted::Instances(declared.clone()))]);
    match reshape(fleet, &wanted) {
        Ok(plan) => {
            prop_assert_eq!(Some(plan.cost), least);
            for change in &plan.changes {
                // The usual case is not written.
                let usual = |compute: &ComputeChange| {
                    let slices = compute.instance.profile.slices();
                    change.created.contains(&compute.instance)
                        && compute.created.iter().all(|part| part.slices == slices)
                };
                prop_assert!(!change.compute.iter().any(usual), "{:?}", change);
            }
            let after = plan
                .after(fleet)
                .map_err(|error| TestCaseError::fail(error.to_string()))?;
            let again = reshape(&after, &wanted).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert!(
                again.changes.is_empty(),
                "once carried out it asks for nothing: {:?}",
                again
            );
        }
        Err(error) => prop_assert_eq!(least, None, "{}", error),
    }
    Ok(())
}

/// The places of the compute instances of each GPU instance.
fn places(instances: &[Held]) -> BTreeMap<Instance, Vec<(u32, u32)>> {
    let of = |held: &Held| {
        let mut parts: Vec<_> = held.parts().iter().map(|part| (part.start, part.slices)).collect();
        parts.sort_unstable();
        (held.instance.clone(), parts)
    };
    instances.iter().map(of).collect()
}

/// A GPU that is to be the same as another becomes that, at the cost that the independent search found.
fn becomes(from: &Case, to: &Case) -> Result<(), TestCaseError> {
    let (fleet, target) = (from.fleet(), to.fleet().gpus()[0].instances.clone());
    let least = brute::same(&from.brute().0[0], &to.brute().0[0].instances).map(Cost::from);
    let wanted = BTreeMap::from([(fleet.gpus()[0].name.clone(), Wanted::Exactly(target.clone()))]);
    let plan = match reshape(&fleet, &wanted) {
        Ok(plan) => plan,
        Err(error) => {
            prop_assert!(matches!(error, PlanError::Pinned { .. }), "{}", error);
            prop_assert_eq!(least, None, "{}", error);
            return Ok(());
        }
    };
    prop_assert_eq!(Some(plan.cost), least);
    let serving: Vec<_> = plan.serving.iter().map(|(_, instance)| instance.clone()).collect();
    prop_assert_eq!(serving, places(&target).into_keys().collect::<Vec<_>>());
    let after = plan
        .after(&fleet)
        .map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert_eq!(after.gpus()[0].mode, Mode::Enabled);
    prop_assert_eq!(places(&after.gpus()[0].instances), places(&target));
    let in_use = |fleet: &Fleet| -> Vec<(Instance, Part)> {
        let all = fleet.gpus()[0].instances.iter();
        let mut parts: Vec<_> = all
            .flat_map(|held| held.parts().into_iter().map(|part| (held.instance.clone(), part)))
            .filter(|(_, part)| part.pinned)
            .collect();
        parts.sort();
        parts
    };
    prop_assert_eq!(in_use(&after), in_use(&fleet));
    let again = reshape(&after, &wanted).map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert!(
        again.changes.is_empty(),
        "once carried out it asks for nothing: {:?}",
        again
    );
    Ok(())
}

/// Each GPU of a fleet costs what it costs alone, also one that is switched off and one that nothing is said of.
fn adds_up(case: &Case, kinds: &[u8]) -> Result<(), TestCaseError> {
    let fleet = case.fleet();
    let (brute, _) = case.brute();
    let mut wanted = BTreeMap::new();
    let mut expected = Some([0; 4]);
    for ((gpu, brute), kind) in fleet.gpus().iter().zip(&brute).zip(kinds) {
        let slots = brute::lost(&brute.table, occupied(gpu));
        let in_use = gpu.instances.iter().any(|held| held.pinned);
        let weights = gpu
            .instances
            .iter()
            .map(|held| held.parts().len().max(1))
            .sum::<usize>();
        let (wish, cost) = match kind {
            0 => (None, Some([0, 0, 0, slots])),
            1 if in_use => (Some(Wanted::Disabled), None),
            1 if gpu.mode == Mode::Disabled => (Some(Wanted::Disabled), Some([0; 4])),
            1 => {
                let destroyed = u32::try_from(weights).expect("few");
                (Some(Wanted::Disabled), Some([destroyed, 1, 1, 0]))
            }
            2 => {
                let as_it_is = gpu.instances.clone();
                let enable = u32::from(gpu.mode == Mode::Disabled);
                (Some(Wanted::Exactly(as_it_is)), Some([0, enable, enable, slots]))
            }
            _ => {
                let none = brute::exactly(brute, &BTreeMap::new());
                (Some(Wanted::Instances(Demand::default())), none)
            }
        };
        wanted.extend(wish.map(|wish| (gpu.name.clone(), wish)));
        expected = expected
            .zip(cost)
            .map(|(sum, more)| [0, 1, 2, 3].map(|level| sum[level] + more[level]));
    }
    let cost = reshape(&fleet, &wanted).map(|plan| plan.cost).ok();
    prop_assert_eq!(cost, expected.map(Cost::from));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_gpu_becomes_another_at_the_least_cost((from, to) in neighbours()) {
        becomes(&from, &to)?;
    }

    #[test]
    fn the_costs_of_several_gpus_add_up(case in divided(1..=4, 4, 3, 1, 1), kinds in prop::collection::vec(0_u8..4, 4)) {
        adds_up(&case, &kinds)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_declared_costs_the_least(case in cases(1..=1, 4, 6, 3, 3)) {
        agrees(&case.fleet(), &case.demand())?;
    }

    #[test]
    fn what_is_declared_with_compute_instances_costs_the_least(case in divided(1..=1, 4, 5, 3, 3)) {
        agrees(&case.fleet(), &case.demand())?;
    }
}

#[test]
fn what_is_declared_of_every_division_of_one_gpu_costs_the_least() {
    for gpu in divided_states() {
        let fleet = Fleet::new([gpu]).expect("a legal state");
        for declared in demands(&divided_sizes(), 5) {
            if let Err(error) = agrees(&fleet, &declared) {
                panic!("{declared} on {:?}: {error}", fleet.gpus()[0].instances);
            }
        }
    }
}

#[test]
fn far_too_much_of_sizes_that_do_not_fill_an_instance_is_refused() {
    let empty = || gpu("gpu-0", "H100-80GB", Mode::Enabled, &[]);
    for declared in [
        [("1c.3g.40gb", 30), ("2c.3g.40gb", 20)],
        [("2c.7g.80gb", 20), ("3c.7g.80gb", 20)],
        [("1c.4g.40gb", 40), ("2c.4g.40gb", u32::MAX)],
    ] {
        let fleet = Fleet::new([empty()]).expect("a legal state");
        let refused = reshape(&fleet, &wanted("gpu-0", &declared)).expect_err("far too much");
        assert!(matches!(refused, PlanError::Short(_)), "{refused}");
    }
}

#[test]
fn a_demand_beyond_all_fleets_is_refused() {
    let fleet = Fleet::new([gpu("gpu-0", "H100-80GB", Mode::Enabled, &[])]).expect("a legal state");
    let demand = [("1g.10gb", u32::MAX), ("1c.2g.20gb", u32::MAX - 1)];
    let demand = demand.map(|(profile, n)| (profile.parse().expect("a profile"), n));
    let refused = plan(&fleet, &demand.into_iter().collect()).expect_err("far too much");
    assert!(matches!(refused, PlanError::Short(_)), "{refused}");
}
