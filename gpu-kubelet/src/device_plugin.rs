//! The device plugin protocol, v1beta1: messages, clients and servers.
//!
//! A plugin implements [`DevicePlugin`] and wraps it in a [`DevicePluginServer`]. The kubelet's side is [`Registration`]
//! (served by the kubelet) and [`DevicePluginClient`]; a plugin needs neither, as [`register`](crate::register) speaks for it.
//!
//! What the real kubelet does with these calls, as far as a plugin can tell, is written down at
//! `double::Kubelet` (feature `double`), which does the same.

pub use crate::generated::v1beta1::{
    AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, ContainerPreferredAllocationResponse, Device, DevicePluginOptions, DeviceSpec,
    Empty, ListAndWatchResponse, Mount, NumaNode, PreStartContainerRequest, PreStartContainerResponse,
    PreferredAllocationRequest, PreferredAllocationResponse, RegisterRequest, TopologyInfo,
    device_plugin_client::DevicePluginClient,
    device_plugin_server::{DevicePlugin, DevicePluginServer},
    registration_client::RegistrationClient,
    registration_server::{Registration, RegistrationServer},
};
