//! The vendor's plugin, recorded (`tests/upstream`): the same devices, the same answers.

use std::{fs, path::Path};

use gpu_plugin::{
    Device, DeviceIdStrategy, DeviceListStrategy, GpuResource, Resource,
    gpu_core::Gpu,
    names::{CDI_KIND, GPU_RESOURCE},
};
use serde_json::{Value, json};

fn case(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upstream/k8s-device-plugin-0.20.0");
    let text = fs::read_to_string(folder.join(format!("{name}.json"))).expect("the recorded case is there");
    serde_json::from_str(&text).expect("the recorded case is JSON")
}

fn resource(case: &Value) -> GpuResource {
    let gpu = |device: &Value| -> Gpu {
        serde_json::from_value(json!({
            "index": device["index"],
            "minor": device["index"],
            "uuid": device["id"],
            "name": "recorded",
            "pci": { "address": device["pci"], "id": "10de:0000" },
            "numa_node": device["numa_node"],
        }))
        .expect("a recorded device makes a GPU")
    };
    // Backwards: the order of the inventory must not matter.
    let gpus: Vec<_> = case["devices"]
        .as_array()
        .expect("a list")
        .iter()
        .rev()
        .map(gpu)
        .collect();
    let list = match case["list_strategy"].as_str() {
        Some("cdi-cri") => DeviceListStrategy::CdiCri,
        _ => DeviceListStrategy::EnvVar,
    };
    let id = match case["id_strategy"].as_str() {
        Some("index") => DeviceIdStrategy::Index,
        _ => DeviceIdStrategy::Uuid,
    };
    let name = GPU_RESOURCE.parse().expect("a valid name");
    GpuResource::new(name, &gpus, &[list], id)
}

fn strings(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}

#[track_caller]
fn check(name: &str) {
    let case = case(name);
    let resource = resource(&case);
    assert_eq!(resource.name().as_str(), case["register"]["resourceName"]);
    assert_eq!(resource.name().socket_name(), case["register"]["endpoint"]);

    let device = |device: &Value| Device {
        id: device["id"].as_str().expect("an id").to_owned(),
        healthy: true,
        numa_node: device["numa_node"]
            .as_u64()
            .map(|node| u32::try_from(node).expect("a small number")),
    };
    let expected: Vec<_> = case["devices"].as_array().expect("a list").iter().map(device).collect();
    assert_eq!(*resource.devices().borrow(), expected);

    for request in case["allocate"].as_array().expect("a list") {
        let containers = request["ids"].as_array().expect("a list");
        for (container, ids) in containers.iter().enumerate() {
            let what = format!("{name}: {}", request["name"]);
            match (resource.allocate(&strings(ids)), &request["error"]) {
                (Err(text), Value::String(expected)) => assert_eq!(text, *expected, "{what}"),
                (Ok(response), Value::Null) => {
                    let expected = &request["response"][container];
                    assert_eq!(json!(response.envs), expected["envs"], "{what}");
                    let cdi: Vec<_> = response.cdi_devices.iter().map(|device| device.name.clone()).collect();
                    assert_eq!(cdi, strings(&expected["cdi"]), "{what}");
                }
                (answer, expected) => panic!("{what}: {answer:?}, and recorded is {expected}"),
            }
        }
    }

    // Which of equal GPUs are preferred is random in the vendor's plugin: how many, and what they must be, is not.
    for request in case["preferred"].as_array().expect("a list") {
        let size = usize::try_from(request["size"].as_i64().expect("a number")).expect("not negative");
        let (available, must) = (strings(&request["available"]), strings(&request["must"]));
        let preferred = resource.preferred(&available, &must, size);
        assert_eq!(
            preferred.len() as u64,
            request["count"],
            "{name}: {} {size}",
            request["name"]
        );
        assert!(preferred.iter().all(|id| available.contains(id)), "{preferred:?}");
        assert!(
            preferred.is_empty() || must.iter().all(|id| preferred.contains(id)),
            "{preferred:?}"
        );
    }
}

#[test]
fn whole_gpus_are_listed_and_allocated_as_recorded() {
    for name in [
        "t4-default",
        "a100-default",
        "h100-default",
        "h200-default",
        "gb200-default",
        "gb300-default",
    ] {
        check(name);
    }
}

#[test]
fn the_index_strategy_answers_as_recorded() {
    check("a100-device-id-index");
}

#[test]
fn the_cdi_strategy_answers_as_recorded() {
    check("a100-cdi-cri");
    let kind = "k8s.device-plugin.nvidia.com/gpu";
    assert_eq!(CDI_KIND, kind, "pods that run have this name in their checkpoint");
}

#[test]
fn preferred_devices_come_in_the_order_of_the_list() {
    let case = case("h100-default");
    let resource = resource(&case);
    let mut available: Vec<_> = resource
        .devices()
        .borrow()
        .iter()
        .map(|device| device.id.clone())
        .collect();
    let in_order = available.clone();
    available.reverse();
    assert_eq!(resource.preferred(&available, &[], 3), in_order[..3]);
    assert_eq!(
        resource.preferred(&available, &in_order[6..7], 2),
        [in_order[6].clone(), in_order[0].clone()]
    );
}
