use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use gpu_kubelet::device_plugin::ContainerAllocateResponse;
use gpu_sharing::{
    config::{AllocationPolicy, ResourceName},
    time_slicing::{SharedId, Spread, prefer},
};
use tokio::sync::watch;
use uuid::Uuid;

use crate::{Affinity, Answers, Device, Mps, OfferedDevice, Resource, ResourceSet, choose};

/// The GPUs or MIG devices of one name as a [`Resource`].
///
/// What it consists of may change while it is served; all answers come from memory.
#[derive(Debug)]
pub struct GpuResource {
    name: ResourceName,
    content: RwLock<Arc<Content>>,
    devices: watch::Sender<Vec<Device>>,
}

/// What a resource answers from.
#[derive(Debug)]
struct Content {
    set: ResourceSet,
    how: How,
    /// The ids that the kubelet knows, in the order of the set.
    ids: Vec<SharedId>,
    /// Where in the set the device of an id is.
    places: HashMap<String, usize>,
}

/// How the devices of all resources of a node are handed out.
#[derive(Debug, Clone)]
pub struct How {
    /// What containers are told.
    pub answers: Arc<Answers>,
    /// What they get of GPUs that are shared by MPS; `None` where none are.
    pub mps: Option<Arc<Mps>>,
    /// Which GPUs go well together.
    pub affinity: Arc<Affinity>,
    /// How replicas lie on GPUs.
    pub policy: AllocationPolicy,
}

impl Content {
    fn new(set: ResourceSet, how: How) -> Self {
        let ids: Vec<_> = set.devices.iter().flat_map(OfferedDevice::ids).collect();
        let numbered = set.devices.iter().enumerate();
        let places = numbered.flat_map(|(place, device)| device.ids().map(move |id| (id.to_string(), place)));
        let places = places.collect();
        Self { set, how, ids, places }
    }

    fn device(&self, id: &str) -> Option<&OfferedDevice> {
        self.places.get(id).map(|place| &self.set.devices[*place])
    }

    fn list(&self, healthy: impl Fn(&OfferedDevice) -> bool) -> Vec<Device> {
        let mut list = Vec::with_capacity(self.ids.len());
        for device in &self.set.devices {
            let healthy = healthy(device);
            list.extend(device.ids().map(|id| Device {
                id: id.to_string(),
                healthy,
                numa_node: device.numa_node,
            }));
        }
        list
    }

    /// Whole GPUs of which each goes to one container, so that it matters which go together.
    fn is_of_whole_gpus(&self) -> bool {
        let whole =
            |device: &OfferedDevice| device.gpu.is_some() && device.instance.is_none() && device.replicas.is_none();
        self.set.devices.iter().all(whole)
    }

    fn aligned(&self, available: &[String], required: &[String], size: usize) -> Option<Vec<String>> {
        let place = |id: &String| self.how.affinity.position(id).filter(|_| self.places.contains_key(id));
        let by_place: HashMap<_, _> = available.iter().filter_map(|id| Some((place(id)?, id))).collect();
        let required: Option<Vec<_>> = required.iter().map(place).collect();
        let places: Vec<_> = by_place.keys().copied().collect();
        let chosen = choose(&self.how.affinity, &places, &required?, size)?;
        Some(
            chosen
                .iter()
                .filter_map(|place| by_place.get(place))
                .map(|id| (*id).clone())
                .collect(),
        )
    }

    fn spread(&self, available: &[String], required: &[String], size: usize) -> Option<Vec<String>> {
        let known = |ids: &[String]| -> Vec<SharedId> {
            let known = ids.iter().filter(|id| self.places.contains_key(*id));
            known.filter_map(|id| id.parse().ok()).collect()
        };
        let spread = match self.how.policy {
            AllocationPolicy::Distributed => Spread::Distributed,
            AllocationPolicy::Packed => Spread::Packed,
        };
        let gpus: HashMap<&str, &str> = self
            .set
            .devices
            .iter()
            .filter_map(|d| Some((d.uuid.as_str(), d.gpu.as_ref()?.as_str())))
            .collect();
        let gpu = |id: &SharedId| gpus.get(id.device()).copied().unwrap_or("");
        let chosen = prefer(&self.ids, &known(available), &known(required), size, spread, gpu);
        Some(chosen.ok()?.iter().map(ToString::to_string).collect())
    }
}

impl GpuResource {
    /// A resource of these devices, all of them healthy.
    pub fn new(set: ResourceSet, how: How) -> Self {
        let content = Content::new(set, how);
        Self {
            name: content.set.name.clone(),
            devices: watch::Sender::new(content.list(|_| true)),
            content: RwLock::new(Arc::new(content)),
        }
    }

    /// Offers these devices, and no others any more; the kubelet is told if its list becomes another.
    pub fn offer(&self, set: ResourceSet, how: How, healthy: impl Fn(&OfferedDevice) -> bool) {
        let content = Arc::new(Content::new(set, how));
        // Answers first: what the kubelet hears of can be allocated.
        *self.content.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&content);
        self.tell(content.list(healthy));
    }

    /// Tells the kubelet which devices are healthy, if that is news.
    pub fn set_health(&self, healthy: impl Fn(&OfferedDevice) -> bool) {
        self.tell(self.content().list(healthy));
    }

    /// Offers nothing any more.
    pub(crate) fn withdraw(&self) {
        let content = self.content();
        let nothing = ResourceSet {
            devices: Vec::new(),
            ..content.set.clone()
        };
        self.offer(nothing, content.how.clone(), |_| false);
    }

    fn tell(&self, list: Vec<Device>) {
        self.devices.send_if_modified(|devices| {
            let changed = *devices != list;
            *devices = list;
            changed
        });
    }

    fn content(&self) -> Arc<Content> {
        Arc::clone(&self.content.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// In the vendor's words, which people search their logs for.
    fn invalid(&self, reason: &str) -> String {
        format!(
            "invalid allocation request for \"{}\": invalid request: {reason}",
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

    /// An unhealthy device is given too: the kubelet has decided, and has its reasons when it restarts a container.
    fn allocate(&self, ids: &[String]) -> Result<ContainerAllocateResponse, String> {
        let content = self.content();
        let mut devices = Vec::with_capacity(ids.len());
        for id in ids {
            let device = content.device(id);
            devices.push(device.ok_or_else(|| self.invalid(&format!("unknown device: {id}")))?);
        }
        let shared = devices.iter().any(|device| device.replicas.is_some());
        if content.set.fail_requests_greater_than_one && shared && ids.len() > 1 {
            let found = ids.len();
            let reason = format!("maximum request size for shared resources is 1; found {found}");
            return Err(self.invalid(&reason));
        }
        let nonce = || Uuid::new_v4().to_string();
        let mut answer = content.how.answers.answer(&devices, nonce);
        if let Some(mps) = &content.how.mps {
            mps.add(&mut answer, &self.name, &devices);
        }
        Ok(answer)
    }

    /// GPUs that reach each other best, or replicas as the policy has them; nothing where there are too few.
    fn preferred(&self, available: &[String], must_include: &[String], size: usize) -> Vec<String> {
        let content = self.content();
        let chosen = if content.is_of_whole_gpus() {
            content.aligned(available, must_include, size)
        } else {
            content.spread(available, must_include, size)
        };
        chosen.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
