//! Field numbers are the contract with the kubelet: bytes put together by hand decode to the right fields and back.

use std::fmt::Debug;

use gpu_kubelet::{
    device_plugin::{
        AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateRequest, ContainerAllocateResponse,
        ContainerPreferredAllocationRequest, ContainerPreferredAllocationResponse, Device, DevicePluginOptions,
        DeviceSpec, ListAndWatchResponse, Mount, NumaNode, PreStartContainerRequest, PreferredAllocationRequest,
        PreferredAllocationResponse, RegisterRequest, TopologyInfo,
    },
    pod_resources as pods,
    prost::Message,
};

/// A length-delimited field: strings, messages and map entries of less than 16 KiB.
fn field(number: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let length = u16::try_from(content.len()).expect("a short field");
    let [high, low] = (length << 1).to_be_bytes(); // seven bits a byte
    let (tag, low) = (number << 3 | 2, low >> 1);
    if high == 0 {
        [&[tag, low], content].concat()
    } else {
        [&[tag, low | 0x80, high], content].concat()
    }
}

/// A varint field: numbers below 128 and booleans.
fn varint(number: u8, value: u8) -> Vec<u8> {
    assert!(number < 16 && value < 128, "one byte of tag, one of value");
    vec![number << 3, value]
}

#[track_caller]
fn check<M: Message + Default + PartialEq + Debug>(bytes: &[u8], message: &M) {
    assert_eq!(M::decode(bytes).expect("a valid message"), *message);
    assert_eq!(message.encode_to_vec(), bytes);
}

#[test]
fn register_request() {
    let options = DevicePluginOptions {
        pre_start_required: true,
        get_preferred_allocation_available: true,
    };
    check(
        &[
            field(1, "v1beta1"),
            field(2, "widgets.sock"),
            field(3, "example.com/widget"),
            field(4, [varint(1, 1), varint(2, 1)].concat()),
        ]
        .concat(),
        &RegisterRequest {
            version: "v1beta1".into(),
            endpoint: "widgets.sock".into(),
            resource_name: "example.com/widget".into(),
            options: Some(options),
        },
    );
}

#[test]
fn list_of_devices() {
    let topology = field(1, varint(1, 1));
    check(
        &field(1, [field(1, "w-0"), field(2, "Healthy"), field(3, topology)].concat()),
        &ListAndWatchResponse {
            devices: vec![Device {
                id: "w-0".into(),
                health: "Healthy".into(),
                topology: Some(TopologyInfo {
                    nodes: vec![NumaNode { id: 1 }],
                }),
            }],
        },
    );
}

#[test]
fn preferred_allocation() {
    check(
        &field(
            1,
            [field(1, "w-0"), field(1, "w-1"), field(2, "w-1"), varint(3, 2)].concat(),
        ),
        &PreferredAllocationRequest {
            container_requests: vec![ContainerPreferredAllocationRequest {
                available_device_ids: vec!["w-0".into(), "w-1".into()],
                must_include_device_ids: vec!["w-1".into()],
                allocation_size: 2,
            }],
        },
    );
    check(
        &field(1, field(1, "w-0")),
        &PreferredAllocationResponse {
            container_responses: vec![ContainerPreferredAllocationResponse {
                device_ids: vec!["w-0".into()],
            }],
        },
    );
}

#[test]
fn allocate() {
    check(
        &field(1, [field(1, "w-0"), field(1, "w-1")].concat()),
        &AllocateRequest {
            container_requests: vec![ContainerAllocateRequest {
                device_ids: vec!["w-0".into(), "w-1".into()],
            }],
        },
    );
    let container = [
        field(1, [field(1, "WIDGETS"), field(2, "w-0")].concat()),
        field(2, [field(1, "/in"), field(2, "/out"), varint(3, 1)].concat()),
        field(3, [field(1, "/dev/in"), field(2, "/dev/w0"), field(3, "rw")].concat()),
        field(4, [field(1, "note"), field(2, "text")].concat()),
        field(5, field(1, "a.b/c=d")),
    ];
    check(
        &field(1, container.concat()),
        &AllocateResponse {
            container_responses: vec![ContainerAllocateResponse {
                envs: [("WIDGETS".to_owned(), "w-0".to_owned())].into(),
                mounts: vec![Mount {
                    container_path: "/in".into(),
                    host_path: "/out".into(),
                    read_only: true,
                }],
                devices: vec![DeviceSpec {
                    container_path: "/dev/in".into(),
                    host_path: "/dev/w0".into(),
                    permissions: "rw".into(),
                }],
                annotations: [("note".to_owned(), "text".to_owned())].into(),
                cdi_devices: vec![CdiDevice { name: "a.b/c=d".into() }],
            }],
        },
    );
    check(
        &field(1, "w-0"),
        &PreStartContainerRequest {
            device_ids: vec!["w-0".into()],
        },
    );
}

#[test]
fn fields_of_a_newer_kubelet_are_skipped() {
    let bytes = [
        field(1, "v1beta1"),
        field(15, "from the future"),
        field(3, "example.com/widget"),
    ]
    .concat();

    let request = RegisterRequest::decode(bytes.as_slice()).unwrap();

    assert_eq!(
        (request.version.as_str(), request.resource_name.as_str()),
        ("v1beta1", "example.com/widget")
    );
}

/// Sizes that a recording of the NVIDIA device plugin v0.20.0 shows for two A100s on NUMA node 0.
#[test]
fn sizes_are_those_recorded_of_the_vendors_plugin() {
    let ids = [
        "GPU-12345678-1234-1234-1234-123456780000",
        "GPU-12345678-1234-1234-1234-123456780001",
    ];
    let list = ListAndWatchResponse {
        devices: ids
            .map(|id| Device {
                id: id.into(),
                health: "Healthy".into(),
                topology: Some(TopologyInfo {
                    nodes: vec![NumaNode { id: 0 }],
                }),
            })
            .into(),
    };
    assert_eq!(list.encoded_len(), 114);

    let allocated = AllocateResponse {
        container_responses: vec![ContainerAllocateResponse {
            cdi_devices: vec![CdiDevice {
                name: format!("k8s.device-plugin.nvidia.com/gpu={}", ids[0]),
            }],
            ..Default::default()
        }],
    };
    assert_eq!(allocated.encoded_len(), 79);
}

#[test]
fn pod_resources() {
    let device = [
        field(1, "example.com/widget"),
        field(2, "w-0"),
        field(3, field(1, varint(1, 1))),
    ]
    .concat();
    let memory = [field(1, "memory"), varint(2, 64), field(3, field(1, varint(1, 1)))].concat();
    let claim_resource = [
        field(1, field(1, "a.b/c=d")),
        field(2, "driver"),
        field(3, "pool"),
        field(4, "w"),
        field(5, "share"),
    ];
    let claim = [field(2, "claim"), field(3, "ns"), field(4, claim_resource.concat())].concat();
    let container = [
        field(1, "main"),
        field(2, &device),
        field(3, [7]),
        field(4, &memory),
        field(5, claim),
    ]
    .concat();
    let pod = [
        field(1, "pod"),
        field(2, "ns"),
        field(3, container),
        field(4, [5]),
        field(5, &memory),
    ]
    .concat();

    let place = Some(pods::TopologyInfo {
        nodes: vec![pods::NumaNode { id: 1 }],
    });
    let device_value = pods::ContainerDevices {
        resource_name: "example.com/widget".into(),
        device_ids: vec!["w-0".into()],
        topology: place.clone(),
    };
    let memory_value = pods::ContainerMemory {
        memory_type: "memory".into(),
        size: 64,
        topology: place,
    };
    let claim_value = pods::DynamicResource {
        claim_name: "claim".into(),
        claim_namespace: "ns".into(),
        claim_resources: vec![pods::ClaimResource {
            cdi_devices: vec![pods::CdiDevice { name: "a.b/c=d".into() }],
            driver_name: "driver".into(),
            pool_name: "pool".into(),
            device_name: "w".into(),
            share_id: Some("share".into()),
        }],
    };
    let pod_value = pods::PodResources {
        name: "pod".into(),
        namespace: "ns".into(),
        containers: vec![pods::ContainerResources {
            name: "main".into(),
            devices: vec![device_value.clone()],
            cpu_ids: vec![7],
            memory: vec![memory_value.clone()],
            dynamic_resources: vec![claim_value],
        }],
        cpu_ids: vec![5],
        memory: vec![memory_value.clone()],
    };

    let pod_bytes = field(1, pod);
    check(
        &pod_bytes,
        &pods::ListPodResourcesResponse {
            pod_resources: vec![pod_value.clone()],
        },
    );
    check(
        &pod_bytes,
        &pods::GetPodResourcesResponse {
            pod_resources: Some(pod_value),
        },
    );
    check(
        &[field(1, "pod"), field(2, "ns")].concat(),
        &pods::GetPodResourcesRequest {
            pod_name: "pod".into(),
            pod_namespace: "ns".into(),
        },
    );
    check(
        &[field(1, device), field(2, [3]), field(3, memory)].concat(),
        &pods::AllocatableResourcesResponse {
            devices: vec![device_value],
            cpu_ids: vec![3],
            memory: vec![memory_value],
        },
    );
}
