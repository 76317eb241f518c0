use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::{
    Shared,
    pod::PodName,
    state::{Containers, Held},
};
use crate::{
    device_plugin::Device,
    pod_resources::{
        AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices, ContainerResources,
        GetPodResourcesRequest, GetPodResourcesResponse, ListPodResourcesRequest, ListPodResourcesResponse, NumaNode,
        PodResources, PodResourcesLister, TopologyInfo,
    },
};

/// The pod resources service. CPUs, memory and claims are none of this kubelet's business and stay empty.
#[derive(Debug)]
pub(super) struct Lister(pub(super) Arc<Shared>);

#[tonic::async_trait]
impl PodResourcesLister for Lister {
    async fn list(&self, _: Request<ListPodResourcesRequest>) -> Result<Response<ListPodResourcesResponse>, Status> {
        let pod_resources = self.0.read(|state| {
            state
                .pods
                .iter()
                .map(|(pod, containers)| pod_resources(pod, containers))
                .collect()
        });
        Ok(Response::new(ListPodResourcesResponse { pod_resources }))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        let devices = self.0.read(|state| {
            let resources = state.all_devices(self.0.config.stop_grace);
            let entries = resources.flat_map(|(resource, devices)| {
                let healthy = devices
                    .listed
                    .values()
                    .filter(|device| devices.healthy.contains(&device.id));
                healthy.flat_map(move |device| listed_devices(resource, device))
            });
            entries.collect()
        });
        Ok(Response::new(AllocatableResourcesResponse {
            devices,
            ..Default::default()
        }))
    }

    async fn get(&self, request: Request<GetPodResourcesRequest>) -> Result<Response<GetPodResourcesResponse>, Status> {
        let GetPodResourcesRequest {
            pod_name,
            pod_namespace,
        } = request.into_inner();
        let not_found = format!("pod {pod_name} in namespace {pod_namespace} not found");
        let pod = PodName {
            namespace: pod_namespace,
            name: pod_name,
        };
        let found = self
            .0
            .read(|state| state.pods.get(&pod).map(|containers| pod_resources(&pod, containers)));
        match found {
            Some(found) => Ok(Response::new(GetPodResourcesResponse {
                pod_resources: Some(found),
            })),
            None => Err(Status::unknown(not_found)),
        }
    }
}

fn pod_resources(pod: &PodName, containers: &Containers) -> PodResources {
    let containers = containers.iter().map(|(name, all_held)| ContainerResources {
        name: name.clone(),
        devices: all_held.iter().flat_map(held_devices).collect(),
        ..Default::default()
    });
    PodResources {
        name: pod.name.clone(),
        namespace: pod.namespace.clone(),
        containers: containers.collect(),
        ..Default::default()
    }
}

fn held_devices(held: &Held) -> Vec<ContainerDevices> {
    let nodes = |id: &String| held.numa_nodes.get(id).cloned();
    held.admission
        .device_ids
        .iter()
        .flat_map(|id| entries(&held.resource, id, nodes(id)))
        .collect()
}

fn listed_devices(resource: &str, device: &Device) -> Vec<ContainerDevices> {
    let nodes = device
        .topology
        .as_ref()
        .map(|topology| topology.nodes.iter().map(|node| node.id).collect());
    entries(resource, &device.id, nodes)
}

/// As the real kubelet has it, an entry for each device and NUMA node, and none for a topology without nodes.
fn entries(resource: &str, id: &str, nodes: Option<Vec<i64>>) -> Vec<ContainerDevices> {
    let entry = |topology| ContainerDevices {
        resource_name: resource.to_owned(),
        device_ids: vec![id.to_owned()],
        topology,
    };
    match nodes {
        None => vec![entry(None)],
        Some(nodes) => nodes
            .into_iter()
            .map(|id| {
                entry(Some(TopologyInfo {
                    nodes: vec![NumaNode { id }],
                }))
            })
            .collect(),
    }
}
