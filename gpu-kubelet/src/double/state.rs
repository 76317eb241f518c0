use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::{Duration, Instant},
};

use tonic::transport::Channel;

use super::{
    event::{Event, EventKind},
    pod::{Admission, PodName},
    shuffle::Shuffle,
};
use crate::{
    device_plugin::{Device, DevicePluginClient, DevicePluginOptions, RegisterRequest},
    names,
};

/// What a kubelet knows: plain data, changed under one lock.
#[derive(Debug)]
pub(super) struct State {
    /// Counts starts. What belongs to an earlier run changes nothing any more.
    pub(super) run: u64,
    pub(super) running: bool,
    pub(super) endpoints: BTreeMap<String, Endpoint>,
    devices: BTreeMap<String, Devices>,
    /// The checkpoint: outlives restarts.
    pub(super) pods: BTreeMap<PodName, Containers>,
    pub(super) events: Vec<Event>,
    pub(super) shuffle: Shuffle,
}

/// A pod's containers, by name; each with what it holds in the order of admission.
pub(super) type Containers = BTreeMap<String, Vec<Held>>;

/// A container's devices of one resource.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) resource: String,
    pub(super) admission: Admission,
    /// The NUMA nodes of each device as listed when it was handed out. Without an entry: nothing known.
    pub(super) numa_nodes: BTreeMap<String, Vec<i64>>,
}

/// The plugin that registered last for a resource.
#[derive(Debug)]
pub(super) enum Endpoint {
    Serving {
        client: DevicePluginClient<Channel>,
        options: DevicePluginOptions,
    },
    Stopped {
        since: Instant,
    },
}

/// A resource's devices.
#[derive(Debug, Default)]
pub(super) struct Devices {
    /// As the plugin sent them last, by id.
    pub(super) listed: BTreeMap<String, Device>,
    /// The ids of those that may be handed out.
    pub(super) healthy: BTreeSet<String>,
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            run: 0,
            running: false,
            endpoints: BTreeMap::new(),
            devices: BTreeMap::new(),
            pods: BTreeMap::new(),
            events: Vec::new(),
            shuffle: Shuffle::new(seed),
        }
    }

    pub(super) fn record(&mut self, kind: EventKind) {
        self.events.push(Event {
            at: Instant::now(),
            kind,
        });
    }

    pub(super) fn started(&mut self) {
        self.running = true;
        self.record(EventKind::Started);
    }

    /// Resources are remembered, their devices are not.
    pub(super) fn stopped(&mut self) {
        self.run += 1;
        self.running = false;
        let since = Instant::now();
        self.endpoints = self
            .devices
            .keys()
            .map(|resource| (resource.clone(), Endpoint::Stopped { since }))
            .collect();
        for devices in self.devices.values_mut() {
            *devices = Devices::default();
        }
        self.record(EventKind::Stopped);
    }

    /// The newest plugin for a resource takes the place of the one before. `false` if the kubelet was stopped meanwhile.
    pub(super) fn registered(
        &mut self,
        run: u64,
        request: &RegisterRequest,
        client: DevicePluginClient<Channel>,
        options: DevicePluginOptions,
    ) -> bool {
        if run != self.run {
            return false;
        }
        let resource = request.resource_name.clone();
        self.endpoints
            .insert(resource.clone(), Endpoint::Serving { client, options });
        self.record(EventKind::Registered {
            resource,
            request: request.clone(),
            options,
        });
        true
    }

    pub(super) fn listed(&mut self, run: u64, resource: &str, devices: Vec<Device>) {
        if run != self.run {
            return;
        }
        let healthy = devices
            .iter()
            .filter(|device| device.health == names::HEALTHY)
            .map(|device| device.id.clone());
        let healthy = healthy.collect();
        let listed = devices
            .iter()
            .map(|device| (device.id.clone(), device.clone()))
            .collect();
        self.devices.insert(resource.to_owned(), Devices { listed, healthy });
        self.record(EventKind::Listed {
            resource: resource.to_owned(),
            devices,
        });
    }

    /// Without an endpoint the devices count no more, whatever is listed.
    pub(super) fn lose(&mut self, resource: &str) {
        self.endpoints.remove(resource);
    }

    /// Goes by the resource's name, as the real kubelet does, even if another plugin has registered for it meanwhile.
    pub(super) fn stream_ended(&mut self, run: u64, resource: &str) {
        if run != self.run {
            return;
        }
        self.endpoints
            .insert(resource.to_owned(), Endpoint::Stopped { since: Instant::now() });
        if let Some(devices) = self.devices.get_mut(resource) {
            devices.healthy.clear();
        }
        self.record(EventKind::StreamEnded {
            resource: resource.to_owned(),
        });
    }

    /// The devices of a resource, unless its plugin has been away for too long.
    pub(super) fn devices(&self, resource: &str, grace: Duration) -> Option<&Devices> {
        match self.endpoints.get(resource) {
            Some(Endpoint::Stopped { since }) if since.elapsed() > grace => None,
            Some(_) => self.devices.get(resource),
            None => None,
        }
    }

    /// The devices of all resources, by name.
    pub(super) fn all_devices(&self, grace: Duration) -> impl Iterator<Item = (&str, &Devices)> {
        self.devices
            .keys()
            .filter_map(move |resource| Some((resource.as_str(), self.devices(resource, grace)?)))
    }

    pub(super) fn in_use(&self, resource: &str) -> BTreeSet<&str> {
        let held = self
            .pods
            .values()
            .flat_map(BTreeMap::values)
            .flatten()
            .filter(|held| held.resource == resource);
        held.flat_map(|held| &held.admission.device_ids)
            .map(String::as_str)
            .collect()
    }

    pub(super) fn admitted(&self, pod: &PodName, container: &str, resource: &str) -> Option<&Admission> {
        let held = self.pods.get(pod)?.get(container)?;
        held.iter()
            .find(|held| held.resource == resource)
            .map(|held| &held.admission)
    }

    /// Writes an admission into the checkpoint.
    pub(super) fn hold(&mut self, pod: &PodName, container: &str, resource: &str, admission: Admission) {
        let devices = self.devices.get(resource);
        let numa_nodes = admission.device_ids.iter().filter_map(|id| {
            let topology = devices?.listed.get(id)?.topology.as_ref()?;
            let nodes: Vec<_> = topology.nodes.iter().map(|node| node.id).collect();
            // The real checkpoint, too, makes no difference between no topology and one without nodes.
            (!nodes.is_empty()).then(|| (id.clone(), nodes))
        });
        let held = Held {
            resource: resource.to_owned(),
            numa_nodes: numa_nodes.collect(),
            admission,
        };
        self.pods
            .entry(pod.clone())
            .or_default()
            .entry(container.to_owned())
            .or_default()
            .push(held);
    }
}

/// For people who wonder why a wait was in vain.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kubelet is {}", if self.running { "running" } else { "stopped" })?;
        for (resource, devices) in &self.devices {
            write!(
                f,
                ", `{resource}`: {} of {} healthy",
                devices.healthy.len(),
                devices.listed.len()
            )?;
        }
        match self.events.last() {
            Some(event) => write!(f, ", last event: {:?}", event.kind),
            None => Ok(()),
        }
    }
}
