use gpu_sharing::config::{ConfigFile, Flags, Options, Reading};
use serde_json::{Value, json};

use super::*;

/// A GPU; with MIG devices it is in MIG mode.
fn gpu(index: u32, mig: Option<&[&str]>) -> Value {
    let device = |(slot, profile): (usize, &&str)| {
        let (compute, slices) = match profile.split_once("c.") {
            Some((compute, rest)) => (compute.parse::<u32>().unwrap(), rest),
            None => (profile[..1].parse().unwrap(), *profile),
        };
        json!({
            "index": slot, "profile": profile, "gpu_instance": 7 + slot, "compute_instance": 0,
            "uuid": format!("MIG-00000000-0000-4000-8000-0000000{index:02}{slot:03}"),
            "attributes": {
                "memory_mib": 1000, "multiprocessors": 14, "gpu_slices": slices[..1].parse::<u32>().unwrap(),
                "compute_slices": compute,
                "engines": { "copy_engines": 1, "decoders": 0, "encoders": 0, "jpeg_engines": 0, "ofa_engines": 0 },
            },
        })
    };
    json!({
        "index": index, "minor": 9 - index, "name": "NVIDIA A100", "numa_node": index / 2,
        "uuid": format!("GPU-00000000-0000-4000-8000-{index:012}"),
        "pci": { "address": format!("0000:0{}:00.0", index + 1), "id": "10de:0000" },
        "mig": mig.map(|devices| json!({
            "enabled": true, "pending_enabled": true,
            "devices": devices.iter().enumerate().map(device).collect::<Vec<_>>(),
        })),
    })
}

fn config(strategy: &str, file: &str, naming: bool) -> Config {
    let (file, _) = ConfigFile::parse(file, Reading::Strict).unwrap();
    let flags = Flags {
        mig_strategy: Some(strategy.parse().unwrap()),
        ..Flags::default()
    };
    Config::resolve(file, flags, Options { naming }).0
}

/// `name: index×replicas …` for each resource.
fn words(offer: &Offer) -> Vec<String> {
    let device = |device: &OfferedDevice| match device.replicas {
        Some(replicas) => format!("{}x{replicas}", device.index),
        None => device.index.clone(),
    };
    let set = |set: &ResourceSet| {
        let devices: Vec<_> = set.devices.iter().map(device).collect();
        format!("{}: {}", set.name.base(), devices.join(" "))
    };
    offer.resources.iter().map(set).collect()
}

#[track_caller]
fn check_with(gpus: &[Value], config: &Config, choice: &GpuChoice, expected: Result<&[&str], &str>) -> Vec<String> {
    let inventory: Inventory = serde_json::from_value(json!({ "gpus": gpus })).unwrap();
    match (offer(Platform::Nvml, &inventory, config, choice), expected) {
        (Ok(offer), Ok(expected)) => {
            assert_eq!(words(&offer), expected);
            offer.remarks.iter().map(ToString::to_string).collect()
        }
        (Err(error), Err(expected)) => {
            assert_eq!(crate::error::chain(&error), expected);
            Vec::new()
        }
        (offer, expected) => panic!("{offer:?}, and expected is {expected:?}"),
    }
}

/// The remarks.
#[track_caller]
fn check(gpus: &[Value], config: &Config, expected: Result<&[&str], &str>) -> Vec<String> {
    check_with(gpus, config, &GpuChoice::default(), expected)
}

fn plain(strategy: &str) -> Config {
    config(strategy, "", false)
}

#[test]
fn gpus_without_mig_are_the_same_by_every_strategy() {
    for strategy in ["none", "single", "mixed"] {
        let remarks = check(&[gpu(1, None), gpu(0, None)], &plain(strategy), Ok(&["gpu: 0 1"]));
        assert!(remarks.is_empty(), "{remarks:?}");
    }
    check(&[], &plain("none"), Ok(&[]));
}

#[test]
fn strategy_none_offers_divided_gpus_whole() {
    check(
        &[gpu(0, Some(&["1g.5gb"])), gpu(1, None)],
        &plain("none"),
        Ok(&["gpu: 0 1"]),
    );
}

#[test]
fn strategy_single_offers_mig_devices_as_gpus_if_all_are_alike() {
    let single = plain("single");
    let two: &[&str] = &["3g.20gb", "3g.20gb"];
    check(
        &[gpu(0, Some(two)), gpu(1, Some(two))],
        &single,
        Ok(&["gpu: 0:0 0:1 1:0 1:1"]),
    );
    check(
        &[gpu(0, Some(two)), gpu(1, Some(&[]))],
        &single,
        Err(
            "at least one device with migEnabled=true was not configured correctly: \
             device 1 has no MIG devices configured",
        ),
    );
    check(
        &[gpu(0, Some(&["3g.20gb", "2g.10gb"]))],
        &single,
        Err("more than one MIG device type present on node"),
    );
    check(
        &[gpu(0, Some(two)), gpu(1, None)],
        &single,
        Err("all devices on the node must be configured with the same migEnabled value"),
    );
}

#[test]
fn strategy_mixed_has_a_resource_for_each_profile() {
    let gpus = [
        gpu(0, Some(&["3g.20gb", "1g.5gb", "1g.5gb+me"])),
        gpu(1, None),
        gpu(2, Some(&[])),
    ];
    let expected = ["gpu: 1", "mig-1g.5gb: 0:1", "mig-1g.5gb.me: 0:2", "mig-3g.20gb: 0:0"];
    let remarks = check(&gpus, &plain("mixed"), Ok(&expected));
    assert_eq!(remarks.len(), 1);
    assert!(remarks[0].starts_with("GPU 2 (GPU-") && remarks[0].ends_with("no MIG devices configured"));
}

#[test]
fn parts_of_a_gpu_instance_are_offered_where_a_rule_names_them() {
    let gpus = [gpu(0, Some(&["1c.3g.20gb", "1c.3g.20gb", "1g.5gb"]))];
    let remarks = check(&gpus, &plain("mixed"), Ok(&["mig-1g.5gb: 0:2"]));
    assert_eq!(
        remarks,
        ["2 MIG devices are not offered: MIG profile '1c.3g.20gb' does not match any resource patterns"]
    );
    let ruled = config("mixed", "resources: { mig: [{ pattern: 1c.*, name: slice }] }", true);
    check(&gpus, &ruled, Ok(&["mig-1g.5gb: 0:2", "slice: 0:0 0:1"]));
}

#[test]
fn rules_name_gpus_by_model() {
    let rules = "resources: { gpus: [{ pattern: '*H100*', name: h100 }, { pattern: '*A100*', name: a100 }] }";
    check(&[gpu(0, None)], &config("none", rules, true), Ok(&["a100: 0"]));
    check(&[gpu(0, None)], &config("none", rules, false), Ok(&["gpu: 0"]));
}

const RENAMED: &str = "sharing: { timeSlicing: { renameByDefault: true, resources: [
    { name: gpu, replicas: 4 }, { name: mig-1g.5gb, replicas: 3 }, { name: mig-7g.40gb, replicas: 2 }] } }";

#[test]
fn replicas_go_under_the_shared_name() {
    let gpus = [gpu(0, Some(&["1g.5gb", "3g.20gb"])), gpu(1, None)];
    let expected = ["gpu.shared: 1x4", "mig-1g.5gb.shared: 0:0x3", "mig-3g.20gb: 0:1"];
    let remarks = check(&gpus, &config("mixed", RENAMED, false), Ok(&expected));
    assert_eq!(
        remarks,
        ["`sharing` names `nvidia.com/mig-7g.40gb`, which this node does not have: nothing of it is shared"]
    );
}

#[test]
fn each_gpu_may_have_its_own_number_of_replicas() {
    let file = "sharing: { timeSlicing: { resources: [
        { name: gpu, replicas: 4, devices: [0] }, { name: gpu, replicas: 2, devices: ['1', '0'], rename: half }] } }";
    let gpus = [gpu(0, None), gpu(1, None), gpu(2, None)];
    check(&gpus, &config("none", file, true), Ok(&["gpu: 0x4 2", "half: 1x2"]));
    check(&gpus, &config("none", file, false), Ok(&["gpu: 0x4 1x4 2x4"]));
}

#[test]
fn what_is_named_and_not_there_keeps_nothing_else_from_being_offered() {
    let gpus = [gpu(0, None), gpu(1, Some(&["1g.5gb"]))];
    let file = "
resources: { gpus: [{ pattern: '*H100*', name: big }, { pattern: '*', name: gpu }], mig: [{ pattern: 7g.*, name: whole }] }
sharing: { timeSlicing: { resources: [{ name: gpu, replicas: 4, devices: [7, 0] }] } }";
    let remarks = check(
        &gpus,
        &config("mixed", file, true),
        Ok(&["gpu: 0x4", "mig-1g.5gb: 1:0"]),
    );
    let expected = [
        "the pattern `*H100*` in `resources.gpus` fits nothing of this node",
        "the pattern `7g.*` in `resources.mig` fits nothing of this node",
        "not all of `nvidia.com/gpu` can be shared: no matching device at index: 7",
    ];
    assert_eq!(remarks, expected);
    assert!(
        check(&[], &config("mixed", file, true), Ok(&[]))
            .iter()
            .all(|remark| !remark.contains("pattern"))
    );
}

#[test]
fn more_replicas_than_the_kubelet_can_be_told_are_refused() {
    let shared = |replicas: u32| {
        let file = format!("sharing: {{ timeSlicing: {{ resources: [{{ name: gpu, replicas: {replicas} }}] }} }}");
        config("none", &file, false)
    };
    let gpus = [gpu(0, None), gpu(1, None)];
    check(&gpus, &shared(25_000), Ok(&["gpu: 0x25000 1x25000"]));
    let error = "`nvidia.com/gpu` would have 8589934590 devices, and the kubelet can be told of 50000";
    check(&gpus, &shared(u32::MAX), Err(error));
}

#[test]
fn gpus_are_included_and_excluded_by_choice() {
    let gpus = [gpu(0, None), gpu(1, None), gpu(2, None)];
    let refs = |words: &[&str]| words.iter().map(|word| word.parse().unwrap()).collect();
    let choice = GpuChoice {
        include: refs(&["0", "0000:03:00.0", "5"]),
        exclude: refs(&["GPU-00000000-0000-4000-8000-000000000000"]),
    };
    let remarks = check_with(&gpus, &plain("none"), &choice, Ok(&["gpu: 2"]));
    assert_eq!(remarks.len(), 3);
    assert_eq!(remarks[0], "this node has no GPU `5` to include or exclude");
    assert!(remarks[1].starts_with("GPU 0 (") && remarks[2].starts_with("GPU 1 ("));
}

#[test]
fn gpus_for_displays_are_not_offered() {
    let mut display = gpu(0, None);
    display["name"] = json!("NVIDIA DGX Display");
    let remarks = check(&[display, gpu(1, None)], &plain("none"), Ok(&["gpu: 1"]));
    assert!(
        remarks[0].ends_with("is not offered: `NVIDIA DGX Display` is for displays"),
        "{remarks:?}"
    );
}

#[test]
fn a_device_is_told_with_its_gpu_and_ids_of_its_replicas() {
    let inventory: Inventory = serde_json::from_value(json!({ "gpus": [gpu(1, Some(&["1g.5gb"]))] })).unwrap();
    let config = config("mixed", RENAMED, false);
    let offer = offer(Platform::Nvml, &inventory, &config, &GpuChoice::default()).unwrap();
    let set = &offer.resources[0];
    assert_eq!(set.len(), 3);
    let device = &set.devices[0];
    assert_eq!(device.instance, Some(Instance { gpu: 7, compute: 0 }));
    assert_eq!(device.node.as_deref(), Some("/dev/nvidia8"));
    assert_eq!(device.gpu.as_ref(), Some(&inventory.gpus[0].uuid));
    let uuid = "MIG-00000000-0000-4000-8000-000000001000";
    assert_eq!(
        device.ids().map(String::from).collect::<Vec<_>>(),
        [0, 1, 2].map(|n| format!("{uuid}::{n}"))
    );
}

/// GPUs that NVML does not tell apart: `name: id/index` for each resource, and the node.
#[track_caller]
fn check_all(platform: Platform, nvml: &Value, config: &Config, expected: Result<(&[&str], Option<&str>), &str>) {
    let inventory: Inventory = serde_json::from_value(nvml.clone()).unwrap();
    let device = |device: &OfferedDevice| {
        assert_eq!((&device.gpu, device.instance, device.numa_node), (&None, None, None));
        format!(
            "{}/{}",
            device.ids().map(String::from).collect::<Vec<_>>().join(","),
            device.index
        )
    };
    let set = |set: &ResourceSet| {
        let devices: Vec<_> = set.devices.iter().map(device).collect();
        format!("{}: {}", set.name.base(), devices.join(" "))
    };
    let offered = offer(platform, &inventory, config, &GpuChoice::default());
    match (offered, expected) {
        (Ok(offer), Ok((resources, node))) => {
            assert_eq!(offer.resources.iter().map(set).collect::<Vec<_>>(), resources);
            let devices = offer.resources.iter().flat_map(|set| &set.devices);
            assert!(devices.into_iter().all(|device| device.node.as_deref() == node));
        }
        (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected),
        (offer, expected) => panic!("{offer:?}, and expected is {expected:?}"),
    }
}

#[test]
fn the_gpu_of_a_tegra_machine_is_one_device_whatever_nvml_tells() {
    let none = json!({ "gpus": [] });
    for strategy in ["none", "single", "mixed"] {
        let expected: (&[&str], _) = (&["gpu: tegra/0"], None);
        check_all(Platform::Tegra, &none, &plain(strategy), Ok(expected));
        let two = json!({ "gpus": [gpu(0, None), gpu(1, Some(&["1g.5gb"]))] });
        check_all(Platform::Tegra, &two, &plain(strategy), Ok(expected));
    }
    let shared = "sharing: { timeSlicing: { resources: [{ name: gpu, replicas: 2 }] } }";
    let replicas: (&[&str], _) = (&["gpu: tegra::0,tegra::1/0"], None);
    check_all(Platform::Tegra, &none, &config("none", shared, false), Ok(replicas));
    let rule = "resources: { gpus: [{ pattern: tegra, name: orin }] }";
    let named: (&[&str], _) = (&["orin: tegra/0"], None);
    check_all(Platform::Tegra, &none, &config("none", rule, true), Ok(named));
}

#[test]
fn the_gpus_of_windows_are_one_device_if_there_are_any() {
    let all: (&[&str], _) = (&["gpu: all/all"], Some("/dev/dxg"));
    let two = json!({ "gpus": [gpu(0, None), gpu(1, None)] });
    check_all(Platform::Wsl, &two, &plain("mixed"), Ok(all));
    // NVML has no minor number of them there.
    let problem = json!({
        "index": 0, "kind": "unreadable", "call": "nvmlDeviceGetMinorNumber", "message": "not supported",
    });
    check_all(
        Platform::Wsl,
        &json!({ "gpus": [], "problems": [problem] }),
        &plain("none"),
        Ok(all),
    );
    check_all(Platform::Wsl, &json!({ "gpus": [] }), &plain("none"), Ok((&[], None)));
    let rule = "resources: { gpus: [{ pattern: '*A100*', name: a100 }] }";
    let named: (&[&str], _) = (&["a100: all/all"], Some("/dev/dxg"));
    check_all(Platform::Wsl, &two, &config("none", rule, true), Ok(named));
}

#[test]
fn of_one_device_nothing_is_chosen_and_mps_shares_none() {
    let mps = "sharing: { mps: { resources: [{ name: gpu, replicas: 2 }] } }";
    let nvml = json!({ "gpus": [gpu(0, None)] });
    for (platform, name) in [
        (Platform::Tegra, "a Tegra machine"),
        (Platform::Wsl, "Windows' subsystem for Linux"),
    ] {
        let error = format!("sharing using MPS is not supported for the GPUs of {name}");
        check_all(platform, &nvml, &config("none", mps, false), Err(&error));
        let other = config("none", &mps.replace("gpu", "mig-1g.5gb"), false);
        let inventory = serde_json::from_value(nvml.clone()).unwrap();
        let offered = offer(platform, &inventory, &other, &GpuChoice::default()).unwrap();
        assert_eq!(offered.resources[0].len(), 1, "what it does not have it does not share");
        let choice = GpuChoice {
            exclude: vec!["0".parse().unwrap()],
            ..GpuChoice::default()
        };
        let error = offer(platform, &inventory, &plain("none"), &choice).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("none can be included or excluded of the GPUs of {name}: they are one device")
        );
    }
}
