//! The pod resources protocol, v1: messages, client and server.
//!
//! [`PodResourcesListerClient`] over a [`connect`](crate::connect)ed channel tells which pod holds which device. The
//! kubelet sends one [`ContainerDevices`] entry for each device and NUMA node, so a device near two nodes comes twice.

pub use crate::generated::v1::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, CdiDevice, ClaimResource, ContainerDevices,
    ContainerMemory, ContainerResources, DynamicResource, GetPodResourcesRequest, GetPodResourcesResponse,
    ListPodResourcesRequest, ListPodResourcesResponse, NumaNode, PodResources, TopologyInfo,
    pod_resources_lister_client::PodResourcesListerClient,
    pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer},
};
