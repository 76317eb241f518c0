use super::*;

fn gpu(n: u32, replicas: Option<u32>) -> OfferedDevice {
    let uuid = format!("GPU-00000000-0000-4000-8000-{n:012}");
    OfferedDevice {
        index: n.to_string(),
        gpu: uuid.parse().ok(),
        uuid,
        node: None,
        instance: None,
        numa_node: None,
        replicas,
    }
}

fn set(devices: Vec<OfferedDevice>, fail: bool) -> ResourceSet {
    ResourceSet {
        name: ResourceName::gpu(),
        devices,
        fail_requests_greater_than_one: fail,
    }
}

fn how(policy: AllocationPolicy, gpus: usize) -> How {
    let answers = Answers {
        lists: vec![gpu_sharing::config::DeviceListStrategy::EnvVar],
        ids: gpu_sharing::config::DeviceIdStrategy::Uuid,
        annotation_prefix: String::new(),
        gates: Vec::new(),
        companions: Vec::new(),
        imex_channels: Vec::new(),
        nodes: None,
    };
    How {
        answers: Arc::new(answers),
        mps: None,
        affinity: Arc::new(Affinity::made_up(
            gpus,
            |one, other| if one / 2 == other / 2 { 100 } else { 10 },
        )),
        policy,
    }
}

fn ids(text: &str) -> Vec<String> {
    let id = |word: &str| {
        let (gpu, replica) = word.split_once("::").map_or((word, None), |(gpu, n)| (gpu, Some(n)));
        let uuid = format!("GPU-00000000-0000-4000-8000-{:012}", gpu.parse::<u32>().unwrap());
        replica.map_or_else(|| uuid.clone(), |n| format!("{uuid}::{n}"))
    };
    text.split_whitespace().map(id).collect()
}

#[test]
fn requests_are_checked_in_the_vendors_words() {
    #[track_caller]
    fn check(replicas: Option<u32>, fail: bool, wanted: &[String], expected: Result<(), &str>) {
        let set = set(vec![gpu(0, replicas), gpu(1, replicas)], fail);
        let resource = GpuResource::new(set, how(AllocationPolicy::Distributed, 2));
        let answer = resource.allocate(wanted).map(drop);
        let prefix = "invalid allocation request for \"nvidia.com/gpu\": invalid request: ";
        assert_eq!(answer, expected.map_err(|text| format!("{prefix}{text}")));
    }
    check(None, true, &ids("0 1"), Ok(()));
    check(Some(2), false, &ids("0::0 1::1"), Ok(()));
    check(Some(2), true, &ids("0::0"), Ok(()));
    let shared = "maximum request size for shared resources is 1; found 2";
    check(Some(2), true, &ids("0::0 1::1"), Err(shared));
    check(None, false, &["GPU-x".to_owned()], Err("unknown device: GPU-x"));
    check(
        Some(2),
        true,
        &[&*ids("0::0"), &["GPU-x".to_owned()]].concat(),
        Err("unknown device: GPU-x"),
    );
    check(
        Some(2),
        false,
        &ids("0::2"),
        Err(&format!("unknown device: {}", ids("0::2")[0])),
    );
}

#[test]
fn whole_gpus_are_chosen_by_their_links_and_replicas_by_the_policy() {
    #[track_caller]
    fn check(
        replicas: Option<u32>,
        policy: AllocationPolicy,
        available: &str,
        must: &str,
        size: usize,
        expected: &str,
    ) {
        let set = set((0..4).map(|n| gpu(n, replicas)).collect(), false);
        let resource = GpuResource::new(set, how(policy, 4));
        let mut chosen = resource.preferred(&ids(available), &ids(must), size);
        chosen.sort();
        assert_eq!(chosen, ids(expected));
    }
    use AllocationPolicy::{Distributed, Packed};
    check(None, Packed, "3 1 2", "", 2, "2 3");
    check(None, Distributed, "3 0 1 2", "1", 2, "0 1");
    check(None, Distributed, "0 1", "", 3, "");
    check(None, Distributed, "0 1", "7", 2, "");
    let all = "0::0 0::1 1::0 1::1 2::0 2::1 3::0 3::1";
    check(Some(2), Distributed, all, "", 3, "0::0 1::0 2::0");
    check(Some(2), Packed, all, "", 3, "0::0 0::1 1::0");
    check(Some(2), Packed, "0::0 0::1 1::1 2::0", "", 1, "1::1");
    check(Some(2), Distributed, "0::0", "", 2, "");
}

#[test]
fn gpus_that_are_one_device_are_preferred_as_such() {
    let all = OfferedDevice {
        uuid: "tegra".to_owned(),
        gpu: None,
        ..gpu(0, None)
    };
    let resource = GpuResource::new(set(vec![all], false), how(AllocationPolicy::Distributed, 0));
    let ids = ["tegra".to_owned()];
    assert_eq!(resource.preferred(&ids, &[], 1), ids);
    assert_eq!(resource.preferred(&ids, &[], 2), [""; 0]);
}

#[test]
fn the_list_follows_health_and_what_is_offered() {
    let resource = GpuResource::new(
        set(vec![gpu(0, Some(2)), gpu(1, None)], false),
        how(AllocationPolicy::Packed, 2),
    );
    let mut devices = resource.devices();
    let healthy = |devices: &watch::Receiver<Vec<Device>>| -> Vec<bool> {
        devices.borrow().iter().map(|device| device.healthy).collect()
    };
    assert_eq!(healthy(&devices), [true, true, true]);
    resource.set_health(|device| device.index != "0");
    assert!(devices.has_changed().unwrap());
    assert_eq!(healthy(&devices), [false, false, true]);
    devices.mark_unchanged();
    resource.set_health(|device| device.index != "0");
    assert!(!devices.has_changed().unwrap(), "that is no news");

    let how = how(AllocationPolicy::Packed, 2);
    resource.offer(set(vec![gpu(1, None)], false), how, |_| true);
    assert_eq!(healthy(&devices), [true]);
    resource.allocate(&ids("1")).unwrap();
    resource.allocate(&ids("0::0")).unwrap_err();
    resource.withdraw();
    assert!(devices.borrow().is_empty());
}
