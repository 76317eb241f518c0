//! The resources of a node, side by side.

use std::{collections::BTreeMap, pin::pin, sync::Arc, time::Duration};

use gpu_sharing::config::ResourceName;
use tokio::{
    sync::{
        mpsc,
        oneshot::{self, error::TryRecvError},
        watch,
    },
    task::JoinSet,
    time,
};

use super::gate::Gate;
use crate::{
    Error, GpuResource, HealthStates, How, Resource, ResourceSet, ResourceStatus, Result, Sockets, Status, known,
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
    /// The names of withdrawn resources that no pod uses any more.
    unused: (
        mpsc::UnboundedSender<ResourceName>,
        mpsc::UnboundedReceiver<ResourceName>,
    ),
    /// Resources that are ending: when they have, the channel is closed.
    ending: BTreeMap<ResourceName, oneshot::Receiver<()>>,
}

struct Served {
    resource: Arc<GpuResource>,
    registered: watch::Receiver<bool>,
    /// Whether it has nothing left; dropped, it ends the wait for nobody to use it.
    withdrawn: Option<oneshot::Sender<()>>,
    /// Closed when it has ended.
    ended: oneshot::Receiver<()>,
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
            unused: mpsc::unbounded_channel(),
            ending: BTreeMap::new(),
        }
    }

    /// Serves these resources, and no others any more. What stays the same is not touched.
    ///
    /// One that has nothing left stays registered with an empty list until no pod has a device of it: the kubelet would go on counting
    /// the devices of one that ended at once for minutes, and miss one that is still used.
    ///
    /// One whose gate is closed is not registered; if it is registered already, its devices are unhealthy meanwhile.
    pub(super) fn offer(&mut self, sets: &[ResourceSet], how: &How, gate: &Gate, health: &HealthStates) {
        let offered = |name: &ResourceName| sets.iter().any(|set| set.name == *name);
        for (name, served) in &mut self.served {
            if !offered(name) && served.withdrawn.is_none() {
                served.resource.withdraw();
                let (stop, stopped) = oneshot::channel();
                served.withdrawn = Some(stop);
                let (socket, unused) = (self.sockets.pod_resources.clone(), self.unused.0.clone());
                let name = name.clone();
                self.tasks.spawn(async move {
                    tokio::select! {
                        _ = stopped => {}
                        () = known::unused(socket.as_deref(), name.as_str()) => drop(unused.send(name)),
                    }
                    Ok(())
                });
            }
        }
        for set in sets {
            let open = gate.is_open(&set.name);
            if let Some(served) = self.served.get_mut(&set.name) {
                served.withdrawn = None;
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
        let (is_over, ended) = oneshot::channel::<()>();
        let before = self.ending.remove(&name);
        let (sockets, served) = (self.sockets.clone(), Arc::clone(&resource));
        self.tasks.spawn(async move {
            let _is_over = is_over;
            let mut stopped = pin!(async {
                let _ = stopped.await;
            });
            // The kubelet takes the end of the old stream for that of the new one.
            if let Some(before) = before {
                tokio::select! {
                    () = &mut stopped => return Ok(()),
                    _ = before => {}
                }
            }
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
                withdrawn: None,
                ended,
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

    /// Completes when one of them cannot go on; ends those that nobody needs meanwhile.
    pub(super) async fn failed(&mut self) -> Error {
        loop {
            let over = tokio::select! {
                Some(name) = self.unused.1.recv() => {
                    self.retire(&name);
                    continue;
                }
                Some(over) = self.tasks.join_next() => over,
                else => return std::future::pending().await,
            };
            match over {
                Ok(Err(error)) => return error,
                Ok(Ok(())) => {}
                Err(panicked) => match panicked.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => std::future::pending().await,
                },
            }
        }
    }

    /// Ends a resource unless it is offered again meanwhile.
    fn retire(&mut self, name: &ResourceName) {
        self.ending
            .retain(|_, ended| matches!(ended.try_recv(), Err(TryRecvError::Empty)));
        let is_withdrawn = |served: &Served| served.withdrawn.is_some();
        if self.served.get(name).is_some_and(is_withdrawn)
            && let Some(served) = self.served.remove(name)
        {
            tracing::info!("no pod has a device of {name} any more: it ends");
            self.ending.insert(name.clone(), served.ended);
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
