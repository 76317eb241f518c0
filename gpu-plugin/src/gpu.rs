use std::{collections::HashMap, fmt};

use gpu_core::{Gpu, GpuUuid, nvml::HealthEvent};
use gpu_kubelet::device_plugin::{CdiDevice, ContainerAllocateResponse};
use tokio::sync::watch;

use crate::{Device, HealthPolicy, Resource, ResourceName, names};

/// How a container is told which GPUs it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceListStrategy {
    /// By `NVIDIA_VISIBLE_DEVICES`, which the NVIDIA container runtime reads.
    EnvVar,
    /// By the names of CDI devices in the kubelet's request to the container runtime (Kubernetes 1.29, containerd 1.7).
    CdiCri,
}

/// How GPUs are named in what a container is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceIdStrategy {
    /// By UUID.
    Uuid,
    /// By NVML's index.
    Index,
}

/// The whole GPUs of a node as a [`Resource`].
///
/// The kubelet knows them by UUID, in PCI order.
#[derive(Debug)]
pub struct GpuResource {
    name: ResourceName,
    lists: Vec<DeviceListStrategy>,
    /// UUID to what a container is told.
    told: HashMap<String, String>,
    devices: watch::Sender<Vec<Device>>,
}

impl GpuResource {
    /// A resource of these GPUs, all of them healthy.
    pub fn new(name: ResourceName, gpus: &[Gpu], lists: &[DeviceListStrategy], ids: DeviceIdStrategy) -> Self {
        let mut gpus: Vec<_> = gpus.iter().collect();
        gpus.sort_by_key(|gpu| gpu.pci.address);
        let told = |gpu: &Gpu| match ids {
            DeviceIdStrategy::Uuid => gpu.uuid.to_string(),
            DeviceIdStrategy::Index => gpu.index.to_string(),
        };
        let device = |gpu: &&Gpu| Device {
            id: gpu.uuid.to_string(),
            healthy: true,
            numa_node: gpu.numa_node,
        };
        Self {
            name,
            lists: lists.to_vec(),
            told: gpus.iter().map(|gpu| (gpu.uuid.to_string(), told(gpu))).collect(),
            devices: watch::Sender::new(gpus.iter().map(device).collect()),
        }
    }

    /// Takes an event into account; whether it changed the health of a device.
    pub fn apply(&self, event: &HealthEvent, policy: &HealthPolicy) -> bool {
        policy.is_fatal(event.kind) && self.set_health(&event.gpu, false)
    }

    /// Marks a GPU that is gone unhealthy; whether that changed anything.
    pub fn lose(&self, gpu: &GpuUuid) -> bool {
        self.set_health(gpu, false)
    }

    /// Whether this changed anything.
    fn set_health(&self, gpu: &GpuUuid, healthy: bool) -> bool {
        self.devices.send_if_modified(|devices| {
            let mut changed = false;
            for device in devices.iter_mut().filter(|device| device.id == gpu.as_str()) {
                changed |= device.healthy != healthy;
                device.healthy = healthy;
            }
            changed
        })
    }
}

impl Resource for GpuResource {
    fn name(&self) -> &ResourceName {
        &self.name
    }

    fn devices(&self) -> watch::Receiver<Vec<Device>> {
        self.devices.subscribe()
    }

    /// A device that is named twice is given once, in the place where it was first named. An unhealthy one is given too:
    /// the kubelet has decided, and has its reasons when it restarts a container.
    fn allocate(&self, ids: &[String]) -> Result<ContainerAllocateResponse, String> {
        let mut told: Vec<&str> = Vec::with_capacity(ids.len());
        for id in ids {
            let name = self.told.get(id).ok_or_else(|| self.unknown(id))?;
            if !told.contains(&name.as_str()) {
                told.push(name);
            }
        }
        let mut response = ContainerAllocateResponse::default();
        for list in &self.lists {
            match list {
                DeviceListStrategy::EnvVar => {
                    response.envs.insert(names::VISIBLE_DEVICES.to_owned(), told.join(","));
                }
                DeviceListStrategy::CdiCri => {
                    let device = |name| CdiDevice {
                        name: format!("{}={name}", names::CDI_KIND),
                    };
                    response.cdi_devices = told.iter().map(device).collect();
                }
            }
        }
        Ok(response)
    }
}

impl GpuResource {
    /// In the vendor's words, which people search their logs for.
    fn unknown(&self, id: impl fmt::Display) -> String {
        format!(
            "invalid allocation request for \"{}\": invalid request: unknown device: {id}",
            self.name
        )
    }
}
