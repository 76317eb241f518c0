//! The pod resources service tells what the kubelet double knows.

use gpu_kubelet::{
    connect,
    double::{Config, Kubelet},
    pod_resources::{
        AllocatableResourcesRequest, ContainerDevices, GetPodResourcesRequest, ListPodResourcesRequest,
        PodResourcesListerClient,
    },
    tonic::{Code, transport::Channel},
};

use crate::plugin::{Behaviour, Plugin, SOON, WIDGET, healthy, on_numa_nodes, unhealthy};

async fn client(kubelet: &Kubelet) -> PodResourcesListerClient<Channel> {
    PodResourcesListerClient::new(connect(kubelet.pod_resources_socket()).await.expect("pod resources"))
}

/// Ids with their NUMA nodes.
fn placed(devices: &[ContainerDevices]) -> Vec<(&str, Option<i64>)> {
    let place = |device: &ContainerDevices| Some(device.topology.as_ref()?.nodes.first()?.id);
    devices
        .iter()
        .map(|device| (device.device_ids[0].as_str(), place(device)))
        .collect()
}

#[tokio::test]
async fn holders_and_allocatable_devices_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let kubelet = Kubelet::start(Config::in_dir(dir.path())).await.unwrap();
    let devices = vec![
        on_numa_nodes(healthy("w-0"), &[0]),
        on_numa_nodes(healthy("w-1"), &[0, 1]),
        healthy("w-2"),
        unhealthy("w-3"),
    ];
    let _plugin = Plugin::serve_and_register(&kubelet, devices, Behaviour::preferring(&["w-1", "w-2"])).await;
    kubelet.wait_for_allocatable(WIDGET, 3, SOON).await.unwrap();
    kubelet.admit("training/worker", "main", WIDGET, 2).await.unwrap();
    let mut client = client(&kubelet).await;

    let allocatable = client
        .get_allocatable_resources(AllocatableResourcesRequest {})
        .await
        .unwrap()
        .into_inner();
    let expected = [("w-0", Some(0)), ("w-1", Some(0)), ("w-1", Some(1)), ("w-2", None)];
    assert_eq!(
        placed(&allocatable.devices),
        expected,
        "in use or not, but only healthy ones"
    );

    let request = GetPodResourcesRequest {
        pod_name: "worker".into(),
        pod_namespace: "training".into(),
    };
    let pod = client.get(request).await.unwrap().into_inner().pod_resources.unwrap();
    assert_eq!((pod.name.as_str(), pod.namespace.as_str()), ("worker", "training"));
    assert_eq!(pod.containers.len(), 1);
    assert_eq!(pod.containers[0].name, "main");
    assert_eq!(
        placed(&pod.containers[0].devices),
        [("w-1", Some(0)), ("w-1", Some(1)), ("w-2", None)]
    );
    assert!(
        pod.containers[0]
            .devices
            .iter()
            .all(|device| device.resource_name == WIDGET)
    );

    let listed = client
        .list(ListPodResourcesRequest {})
        .await
        .unwrap()
        .into_inner()
        .pod_resources;
    assert_eq!(listed, std::slice::from_ref(&pod));

    kubelet.restart().await.unwrap();
    let listed = client
        .list(ListPodResourcesRequest {})
        .await
        .unwrap()
        .into_inner()
        .pod_resources;
    assert_eq!(
        listed,
        [pod],
        "by the same channel, and the checkpoint knows the NUMA nodes"
    );
    let allocatable = client
        .get_allocatable_resources(AllocatableResourcesRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(allocatable.devices, []);
}

#[tokio::test]
async fn unknown_pod_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let kubelet = Kubelet::start(Config::in_dir(dir.path())).await.unwrap();
    let mut client = client(&kubelet).await;

    let request = GetPodResourcesRequest {
        pod_name: "worker".into(),
        pod_namespace: "training".into(),
    };
    let status = client.get(request).await.unwrap_err();

    assert_eq!(
        (status.code(), status.message()),
        (Code::Unknown, "pod worker in namespace training not found")
    );
    let listed = client.list(ListPodResourcesRequest {}).await.unwrap().into_inner();
    assert_eq!(listed.pod_resources, []);
}
