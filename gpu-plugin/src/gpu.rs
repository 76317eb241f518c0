use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError, RwLock},
};

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
/// The kubelet knows them by UUID, in PCI order. Which GPUs there are may change while the resource is served.
#[derive(Debug)]
pub struct GpuResource {
    name: ResourceName,
    lists: Vec<DeviceListStrategy>,
    ids: DeviceIdStrategy,
    /// UUID to what a container is told.
    told: RwLock<HashMap<String, String>>,
    devices: watch::Sender<Vec<Device>>,
    /// What has failed since [`begin_anew`](Self::begin_anew). Held while the devices change, so that no failure is lost.
    failed: Mutex<BTreeSet<GpuUuid>>,
}

impl GpuResource {
    /// A resource of these GPUs, all of them healthy.
    pub fn new(name: ResourceName, gpus: &[Gpu], lists: &[DeviceListStrategy], ids: DeviceIdStrategy) -> Self {
        let resource = Self {
            name,
            lists: lists.to_vec(),
            ids,
            told: RwLock::default(),
            devices: watch::Sender::new(Vec::new()),
            failed: Mutex::default(),
        };
        resource.offer(gpus);
        resource
    }

    /// Takes an event into account; whether it changed the health of a device.
    pub fn apply(&self, event: &HealthEvent, policy: &HealthPolicy) -> bool {
        policy.is_fatal(event.kind) && self.fail(&event.gpu)
    }

    /// Marks a GPU unhealthy, for good; whether that is news.
    pub fn fail(&self, gpu: &GpuUuid) -> bool {
        let mut failed = self.failed();
        failed.insert(gpu.clone());
        self.devices.send_if_modified(|devices| {
            let mut changed = false;
            for device in devices.iter_mut().filter(|device| device.id == gpu.as_str()) {
                changed |= device.healthy;
                device.healthy = false;
            }
            changed
        })
    }

    /// Before the node is read again: what fails from here on is unhealthy in what is [offered](Self::offer) next.
    pub(crate) fn begin_anew(&self) {
        self.failed().clear();
    }

    /// Offers these GPUs, and no others any more.
    pub(crate) fn offer(&self, gpus: &[Gpu]) {
        let mut gpus: Vec<_> = gpus.iter().collect();
        gpus.sort_by_key(|gpu| gpu.pci.address);
        let told = |gpu: &&Gpu| match self.ids {
            DeviceIdStrategy::Uuid => (gpu.uuid.to_string(), gpu.uuid.to_string()),
            DeviceIdStrategy::Index => (gpu.uuid.to_string(), gpu.index.to_string()),
        };
        *self.told.write().unwrap_or_else(PoisonError::into_inner) = gpus.iter().map(told).collect();

        let failed = self.failed();
        let device = |gpu: &&Gpu| Device {
            id: gpu.uuid.to_string(),
            healthy: !failed.contains(&gpu.uuid),
            numa_node: gpu.numa_node,
        };
        let offered: Vec<_> = gpus.iter().map(device).collect();
        self.devices.send_if_modified(|devices| {
            let changed = *devices != offered;
            *devices = offered;
            changed
        });
    }

    fn failed(&self) -> MutexGuard<'_, BTreeSet<GpuUuid>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a container is told of a device.
    fn told(&self, id: &str) -> Option<String> {
        let told = self.told.read().unwrap_or_else(PoisonError::into_inner);
        told.get(id).cloned()
    }

    /// In the vendor's words, which people search their logs for.
    fn unknown(&self, id: &str) -> String {
        format!(
            "invalid allocation request for \"{}\": invalid request: unknown device: {id}",
            self.name
        )
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
        let mut told: Vec<String> = Vec::with_capacity(ids.len());
        for id in ids {
            let name = self.told(id).ok_or_else(|| self.unknown(id))?;
            if !told.contains(&name) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32) -> Gpu {
        serde_json::from_value(serde_json::json!({
            "index": index,
            "minor": index,
            "uuid": format!("GPU-00000000-0000-4000-8000-00000000000{index}"),
            "name": "made up",
            "pci": { "address": format!("0000:0{index}:00.0"), "id": "10de:0000" },
        }))
        .unwrap()
    }

    fn healthy(resource: &GpuResource) -> Vec<bool> {
        resource.devices.borrow().iter().map(|device| device.healthy).collect()
    }

    #[test]
    fn a_failure_while_the_node_is_read_again_is_not_forgotten() {
        let gpus = [gpu(0), gpu(1)];
        let name = names::GPU_RESOURCE.parse().unwrap();
        let resource = GpuResource::new(name, &gpus, &[], DeviceIdStrategy::Uuid);
        assert!(resource.fail(&gpus[0].uuid));
        assert!(!resource.fail(&gpus[0].uuid), "that is no news");
        assert_eq!(healthy(&resource), [false, true]);

        resource.begin_anew();
        resource.fail(&gpus[1].uuid);
        resource.offer(&gpus);
        assert_eq!(healthy(&resource), [true, false]);
    }

    #[test]
    fn only_what_is_offered_is_allocated() {
        let name = names::GPU_RESOURCE.parse().unwrap();
        let resource = GpuResource::new(name, &[gpu(0)], &[], DeviceIdStrategy::Uuid);
        resource.offer(&[gpu(1)]);
        resource.allocate(&[gpu(1).uuid.to_string()]).unwrap();
        resource.allocate(&[gpu(0).uuid.to_string()]).unwrap_err();
    }
}
