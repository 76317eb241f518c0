//! The resources of a node, side by side.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use gpu_sharing::config::ResourceName;
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
    time,
};

use super::gate::Gate;
use crate::{
    Error, GpuResource, HealthStates, How, Resource, ResourceSet, ResourceStatus, Result, Sockets, Status,
    serve_observed,
};

/// How long all get to end together.
const END: Duration = Duration::from_millis(1200);

/// What is served.
pub(super) struct Fleet {
    sockets: Sockets,
    served: BTreeMap<ResourceName, Served>,
    tasks: JoinSet<Result<()>>,
    /// Changes when a resource was registered, or lost its registration.
    registrations: watch::Sender<u64>,
}

struct Served {
    resource: Arc<GpuResource>,
    registered: watch::Receiver<bool>,
    /// Ends it when it is dropped.
    _stop: oneshot::Sender<()>,
}

impl Fleet {
    pub(super) fn new(sockets: Sockets) -> Self {
        Self {
            sockets,
            served: BTreeMap::new(),
            tasks: JoinSet::new(),
            registrations: watch::Sender::new(0),
        }
    }

    /// Serves these resources, and no others any more. What stays the same is not touched.
    ///
    /// One that has nothing left stays registered with an empty list: the kubelet would go on counting the devices of one that
    /// ended for minutes.
    ///
    /// One whose gate is closed is not registered; if it is registered already, its devices are unhealthy meanwhile.
    pub(super) fn offer(&mut self, sets: &[ResourceSet], how: &How, gate: &Gate, health: &HealthStates) {
        for (name, served) in &self.served {
            if sets.iter().all(|set| set.name != *name) {
                served.resource.withdraw();
            }
        }
        for set in sets {
            let open = gate.is_open(&set.name);
            if let Some(served) = self.served.get(&set.name) {
                served
                    .resource
                    .offer(set.clone(), how.clone(), |device| open && health.is_healthy(device));
            } else if open {
                let resource = GpuResource::new(set.clone(), how.clone());
                resource.set_health(|device| health.is_healthy(device));
                self.serve(Arc::new(resource));
            }
        }
    }

    fn serve(&mut self, resource: Arc<GpuResource>) {
        let name = resource.name().clone();
        let (registered, observed) = watch::channel(false);
        let (stop, stopped) = oneshot::channel::<()>();
        let (sockets, served) = (self.sockets.clone(), Arc::clone(&resource));
        self.tasks.spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            serve_observed(served, &sockets, &registered, stopped).await
        });
        self.tasks.spawn({
            let (mut observed, registrations) = (observed.clone(), self.registrations.clone());
            async move {
                while observed.changed().await.is_ok() {
                    registrations.send_modify(|count| *count += 1);
                }
                Ok(())
            }
        });
        self.served.insert(
            name,
            Served {
                resource,
                registered: observed,
                _stop: stop,
            },
        );
    }

    pub(super) fn set_health(&self, gate: &Gate, health: &HealthStates) {
        for (name, served) in &self.served {
            let open = gate.is_open(name);
            served.resource.set_health(|device| open && health.is_healthy(device));
        }
    }

    /// Completes when one of them cannot go on.
    pub(super) async fn failed(&mut self) -> Error {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(Err(error))) => return error,
                Some(Ok(Ok(()))) => {}
                Some(Err(panicked)) => match panicked.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => std::future::pending().await,
                },
                None => std::future::pending().await,
            }
        }
    }

    /// Changes whenever a resource is registered, or is no more.
    pub(super) fn registrations(&self) -> watch::Receiver<u64> {
        self.registrations.subscribe()
    }

    pub(super) fn status(&self, waiting: Option<String>, problems: &[String]) -> Status {
        let status = |(name, served): (&ResourceName, &Served)| {
            let devices = served.resource.devices();
            let devices = devices.borrow();
            ResourceStatus {
                name: name.clone(),
                devices: devices.len(),
                healthy: devices.iter().filter(|device| device.healthy).count(),
                registered: *served.registered.borrow(),
            }
        };
        Status {
            waiting,
            resources: self.served.iter().map(status).collect(),
            problems: problems.to_vec(),
            ..Status::default()
        }
    }

    /// Ends all of them, which tells the kubelet at once.
    pub(super) async fn end(&mut self) {
        self.served.clear();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let _ = time::timeout(END, all).await;
        self.tasks.abort_all();
    }
}
