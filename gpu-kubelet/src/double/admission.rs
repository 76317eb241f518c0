use std::collections::BTreeSet;

use tonic::transport::Channel;

use super::{
    Shared,
    error::AdmitError,
    event::EventKind,
    pod::{Admission, ContainerOptions, PodName},
    state::{Endpoint, Held, State},
};
use crate::device_plugin::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse, ContainerPreferredAllocationRequest,
    DevicePluginClient, PreStartContainerRequest, PreferredAllocationRequest,
};

/// One container's wish for devices of one resource.
struct Wish<'a> {
    pod: &'a PodName,
    container: &'a str,
    resource: &'a str,
    count: usize,
}

/// How a wish can be met.
enum Way {
    /// It was met before.
    Known(Admission),
    /// Some of these, in no stable order. With a client if the plugin has a preference.
    Choose {
        available: Vec<String>,
        advisor: Option<DevicePluginClient<Channel>>,
    },
}

pub(super) async fn admit(
    shared: &Shared,
    pod: &PodName,
    container: &str,
    resource: &str,
    count: usize,
) -> Result<Admission, AdmitError> {
    let wish = Wish {
        pod,
        container,
        resource,
        count,
    };
    let _one_at_a_time = shared.admitting.lock().await;
    match shared.update(|state| wish.way(state, shared))? {
        Way::Known(admission) => Ok(admission),
        Way::Choose { available, advisor } => {
            let preferred = match advisor {
                Some(plugin) => wish.ask_for_preference(shared, plugin, &available).await?,
                None => Vec::new(),
            };
            let device_ids = shared.update(|state| wish.choose(state, available, &preferred));
            wish.allocate(shared, device_ids).await
        }
    }
}

impl Wish<'_> {
    /// The checks come in the real kubelet's order.
    fn way(&self, state: &mut State, shared: &Shared) -> Result<Way, AdmitError> {
        if !state.running {
            return Err(AdmitError::Stopped);
        }
        let resource = self.resource.to_owned();
        let known = state.admitted(self.pod, self.container, self.resource);
        if let Some(had) = known.map(|known| known.device_ids.len())
            && had != self.count
        {
            let (pod, container) = (self.pod.clone(), self.container.to_owned());
            return Err(AdmitError::RequestChanged {
                pod,
                container,
                resource,
                had,
                requested: self.count,
            });
        }
        let Some(devices) = state.devices(self.resource, shared.config.stop_grace) else {
            return Err(AdmitError::Unregistered { resource });
        };
        if devices.healthy.is_empty() {
            return Err(AdmitError::NoHealthyDevices { resource });
        }
        if let Some(known) = known {
            let healthy = known.device_ids.iter().all(|id| devices.healthy.contains(id));
            return if healthy {
                Ok(Way::Known(known.clone()))
            } else {
                Err(AdmitError::NoLongerHealthy { resource })
            };
        }
        if self.count == 0 {
            return Ok(Way::Known(Admission::default()));
        }
        let in_use = state.in_use(self.resource);
        let mut available: Vec<_> = devices
            .healthy
            .iter()
            .filter(|id| !in_use.contains(id.as_str()))
            .cloned()
            .collect();
        if available.len() < self.count {
            return Err(AdmitError::Unavailable {
                resource,
                requested: self.count,
                available: available.len(),
            });
        }
        state.shuffle.shuffle(&mut available);
        let advisor = match state.endpoints.get(self.resource) {
            Some(Endpoint::Serving { client, options }) if options.get_preferred_allocation_available => {
                Some(client.clone())
            }
            _ => None,
        };
        Ok(Way::Choose { available, advisor })
    }

    async fn ask_for_preference(
        &self,
        shared: &Shared,
        mut plugin: DevicePluginClient<Channel>,
        available: &[String],
    ) -> Result<Vec<String>, AdmitError> {
        let request = ContainerPreferredAllocationRequest {
            available_device_ids: available.to_vec(),
            must_include_device_ids: Vec::new(), // only init containers and NUMA affinity have such
            allocation_size: i32::try_from(self.count).unwrap_or(i32::MAX),
        };
        let request = PreferredAllocationRequest {
            container_requests: vec![request],
        };
        let answer = plugin.get_preferred_allocation(request);
        let failed = |status| AdmitError::PreferredAllocation { status };
        let answer = shared.call("GetPreferredAllocation", answer, failed).await?;
        let preferred = answer
            .container_responses
            .into_iter()
            .next()
            .unwrap_or_default()
            .device_ids;
        shared.update(|state| {
            state.record(EventKind::Preferred {
                resource: self.resource.to_owned(),
                available: available.to_vec(),
                count: self.count,
                preferred: preferred.clone(),
            });
        });
        Ok(preferred)
    }

    /// The preferred ones first, then whatever comes, in no stable order.
    fn choose(&self, state: &mut State, available: Vec<String>, preferred: &[String]) -> Vec<String> {
        let preferred: BTreeSet<_> = preferred.iter().collect();
        let (first, rest): (Vec<_>, Vec<_>) = available.into_iter().partition(|id| preferred.contains(id));
        let mut chosen: Vec<_> = first.into_iter().chain(rest).take(self.count).collect();
        state.shuffle.shuffle(&mut chosen);
        chosen
    }

    async fn allocate(&self, shared: &Shared, device_ids: Vec<String>) -> Result<Admission, AdmitError> {
        let resource = self.resource.to_owned();
        let plugin = shared.read(|state| match state.endpoints.get(self.resource) {
            Some(Endpoint::Serving { client, .. }) => Some(client.clone()),
            _ => None,
        });
        let Some(mut plugin) = plugin else {
            return Err(AdmitError::EndpointStopped { resource });
        };
        let container_requests = vec![ContainerAllocateRequest {
            device_ids: device_ids.clone(),
        }];
        let answer = plugin.allocate(AllocateRequest { container_requests });
        let answer = shared
            .call("Allocate", answer, |status| AdmitError::Allocate { status })
            .await?;
        let Some(response) = answer.container_responses.into_iter().next() else {
            return Err(AdmitError::EmptyAnswer { resource });
        };
        Ok(shared.update(|state| self.keep(state, device_ids, response)))
    }

    fn keep(&self, state: &mut State, device_ids: Vec<String>, response: ContainerAllocateResponse) -> Admission {
        let mut admission = Admission {
            device_ids: device_ids.clone(),
            response: response.clone(),
        };
        admission.device_ids.sort();
        state.hold(self.pod, self.container, self.resource, admission.clone());
        state.record(EventKind::Allocated {
            resource: self.resource.to_owned(),
            device_ids,
            response,
        });
        admission
    }
}

pub(super) async fn start_container(
    shared: &Shared,
    pod: &PodName,
    container: &str,
) -> Result<ContainerOptions, AdmitError> {
    let all_held = shared.read(|state| {
        if !state.running {
            return Err(AdmitError::Stopped);
        }
        Ok(state
            .pods
            .get(pod)
            .and_then(|containers| containers.get(container))
            .cloned()
            .unwrap_or_default())
    })?;
    let mut options = ContainerOptions::default();
    for Held {
        resource, admission, ..
    } in all_held
    {
        let plugin = shared.read(|state| match state.endpoints.get(&resource) {
            Some(Endpoint::Serving { client, options }) if options.pre_start_required => Some(client.clone()),
            _ => None,
        });
        if let Some(mut plugin) = plugin {
            let request = PreStartContainerRequest {
                device_ids: admission.device_ids,
            };
            let failed = |status| AdmitError::PreStart { status };
            shared
                .call("PreStartContainer", plugin.pre_start_container(request), failed)
                .await?;
        }
        options.add(&admission.response);
    }
    Ok(options)
}
