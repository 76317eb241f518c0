//! A kubelet for tests and demonstrations: no cluster, no root, no pods that run.
//!
//! [`Kubelet`] serves the registration and pod resources sockets in directories of your choice and treats a plugin as the
//! real kubelet's device manager does (Kubernetes `pkg/kubelet/cm/devicemanager/manager.go`, read at 7510f329; its
//! error texts are used where a plugin or a pod would see them):
//!
//! - At start it removes every socket in the device plugin directory, other files stay, and makes `kubelet.sock`.
//! - `Register` checks the version and that the name is an extended resource's, calls the plugin back, and asks it for its
//!   options, all before it answers. Those options count, not the request's. Failures are answers with code `Unknown`.
//! - Each `ListAndWatch` message replaces the resource's devices. Capacity is all of them, allocatable the healthy ones.
//! - When a `ListAndWatch` stream ends, the resource's devices are unhealthy at once, and after a while without a new
//!   registration the resource is dropped. That goes by the resource's name: the end of an old stream also stops a
//!   plugin that has registered anew meanwhile.
//! - For a container it takes from the devices that are healthy and not in use, asks `GetPreferredAllocation` if the plugin
//!   offers it (even if there is no choice), ignores ids that it did not offer, fills up at will, and calls `Allocate`
//!   with a single container. Ids come in no stable order: here shuffled, by a seed.
//! - The answer is kept for the life of the pod, also over a restart of the kubelet, and used again when the container restarts.
//! - After a restart every resource has 0 devices until its plugin registers again.
//!
//! It differs in that pods are only names, without init containers, NUMA affinity (topology manager) or an API server;
//! that the checkpoint is kept in memory; that all that happens is recorded as [`Event`]s; and that
//! no call lasts forever: see [`Config`].

use std::{
    future::Future,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Mutex as AsyncMutex, watch},
    time::{Instant, timeout_at},
};

use self::{session::Session, state::State};
use crate::device_plugin::Device;

mod admission;
mod config;
mod error;
mod event;
mod pod;
mod pod_resources;
mod session;
mod shuffle;
mod state;

pub use self::{
    config::Config,
    error::{AdmitError, StartError, WaitError},
    event::{Event, EventKind},
    pod::{Admission, ContainerOptions, PodName},
};

/// A running kubelet double. Dropped, it stops and removes its sockets.
#[derive(Debug)]
pub struct Kubelet {
    shared: Arc<Shared>,
    /// `None` while stopped.
    session: AsyncMutex<Option<Session>>,
}

/// What the kubelet's tasks have in common.
#[derive(Debug)]
struct Shared {
    config: Config,
    state: Mutex<State>,
    changed: watch::Sender<()>,
    /// The kubelet admits one pod after the other.
    admitting: AsyncMutex<()>,
}

impl Kubelet {
    /// Starts a kubelet. Makes its directories if they are missing.
    ///
    /// # Errors
    /// A directory cannot be made or cleared, or a socket not be made.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(config.seed)),
            config,
            changed: watch::Sender::new(()),
            admitting: AsyncMutex::new(()),
        });
        let session = Session::start(&shared).await?;
        Ok(Self {
            shared,
            session: AsyncMutex::new(Some(session)),
        })
    }

    /// Ends the kubelet's servers and connections, as if its process had been stopped. Pods keep their devices.
    pub async fn stop(&self) {
        if let Some(session) = self.session.lock().await.take() {
            session.stop(&self.shared).await;
        }
    }

    /// Stops the kubelet if it runs and starts it again, with the checkpoint of the last.
    ///
    /// # Errors
    /// As [`Kubelet::start`]; the kubelet is then stopped.
    pub async fn restart(&self) -> Result<(), StartError> {
        let mut session = self.session.lock().await;
        if let Some(session) = session.take() {
            session.stop(&self.shared).await;
        }
        *session = Some(Session::start(&self.shared).await?);
        Ok(())
    }

    /// Where plugins put their sockets.
    pub fn device_plugin_dir(&self) -> &Path {
        &self.shared.config.device_plugin_dir
    }

    /// Where plugins register.
    pub fn registration_socket(&self) -> PathBuf {
        self.shared.config.registration_socket()
    }

    /// Where pod resources are served.
    pub fn pod_resources_socket(&self) -> &Path {
        &self.shared.config.pod_resources_socket
    }

    /// How many devices the node's status offers to the scheduler. `None` if no plugin ever listed any, or long ago.
    pub fn allocatable(&self, resource: &str) -> Option<usize> {
        self.read(|state| {
            state
                .devices(resource, self.shared.config.stop_grace)
                .map(|devices| devices.healthy.len())
        })
    }

    /// How many devices the node's status counts, healthy or not. `None` if no plugin ever listed any, or long ago.
    pub fn capacity(&self, resource: &str) -> Option<usize> {
        self.read(|state| {
            state
                .devices(resource, self.shared.config.stop_grace)
                .map(|devices| devices.listed.len())
        })
    }

    /// The devices as last listed by the plugin, by id. Empty if there are none.
    pub fn devices(&self, resource: &str) -> Vec<Device> {
        self.read(|state| {
            let devices = state.devices(resource, self.shared.config.stop_grace);
            devices
                .map(|devices| devices.listed.values().cloned().collect())
                .unwrap_or_default()
        })
    }

    /// All that has happened so far, in order.
    pub fn events(&self) -> Vec<Event> {
        self.read(|state| state.events.clone())
    }

    /// How many times a plugin has registered for the resource with success.
    pub fn registrations(&self, resource: &str) -> usize {
        let registered =
            |event: &&Event| matches!(&event.kind, EventKind::Registered { resource: name, .. } if name == resource);
        self.read(|state| state.events.iter().filter(registered).count())
    }

    /// Waits until the condition holds; it is asked at once and after every [`Event`].
    ///
    /// # Errors
    /// It does not hold within the given time. The error tells `what` was waited for and what the state was.
    pub async fn wait_until(
        &self,
        what: &str,
        within: Duration,
        mut condition: impl FnMut(&Self) -> bool,
    ) -> Result<(), WaitError> {
        let deadline = Instant::now() + within;
        let mut changed = self.shared.changed.subscribe();
        while !condition(self) {
            if !matches!(timeout_at(deadline, changed.changed()).await, Ok(Ok(()))) {
                return Err(WaitError {
                    what: what.to_owned(),
                    within,
                    seen: self.read(ToString::to_string),
                });
            }
        }
        Ok(())
    }

    /// Waits until exactly `count` devices are allocatable.
    ///
    /// # Errors
    /// As [`Kubelet::wait_until`].
    pub async fn wait_for_allocatable(&self, resource: &str, count: usize, within: Duration) -> Result<(), WaitError> {
        let what = format!("{count} allocatable `{resource}`");
        self.wait_until(&what, within, |kubelet| kubelet.allocatable(resource) == Some(count))
            .await
    }

    /// Waits until plugins have registered for the resource at least `count` times since [`Kubelet::start`].
    ///
    /// # Errors
    /// As [`Kubelet::wait_until`].
    pub async fn wait_for_registrations(
        &self,
        resource: &str,
        count: usize,
        within: Duration,
    ) -> Result<(), WaitError> {
        let what = format!("registration {count} of `{resource}`");
        self.wait_until(&what, within, |kubelet| kubelet.registrations(resource) >= count)
            .await
    }

    /// Gives a container `count` devices, or an answer already kept for it.
    ///
    /// Containers are admitted one after the other. A container that has its devices already is taken for restarted: it gets
    /// the same answer again and the plugin is not asked. A pod holds its devices until [`Kubelet::remove_pod`].
    ///
    /// # Errors
    /// What the real kubelet would put into the message of the pod that it fails (`UnexpectedAdmissionError`).
    pub async fn admit(
        &self,
        pod: impl Into<PodName>,
        container: &str,
        resource: &str,
        count: usize,
    ) -> Result<Admission, AdmitError> {
        admission::admit(&self.shared, &pod.into(), container, resource, count).await
    }

    /// Readies an admitted container's start: calls `PreStartContainer` where a plugin wants it, and puts the answers of
    /// all its resources together.
    ///
    /// Nothing for a container that holds no devices.
    ///
    /// # Errors
    /// `PreStartContainer` fails.
    pub async fn start_container(
        &self,
        pod: impl Into<PodName>,
        container: &str,
    ) -> Result<ContainerOptions, AdmitError> {
        admission::start_container(&self.shared, &pod.into(), container).await
    }

    /// Forgets a pod and frees its devices. Tells whether it held any.
    pub fn remove_pod(&self, pod: impl Into<PodName>) -> bool {
        self.shared.update(|state| state.pods.remove(&pod.into()).is_some())
    }

    /// Loses a resource and its devices, and goes on listening to its plugin, as kubelets have been seen to do
    /// (k8s-device-plugin issue 1228).
    pub fn lose(&self, resource: &str) {
        self.shared.update(|state| state.lose(resource));
    }

    fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        self.shared.read(read)
    }
}

impl Shared {
    fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the state and wakes those who wait.
    fn update<T>(&self, update: impl FnOnce(&mut State) -> T) -> T {
        let result = update(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_replace(());
        result
    }

    /// The plugin's answer to a call, within the time that the configuration grants.
    async fn call<T>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
        failed: impl FnOnce(tonic::Status) -> AdmitError,
    ) -> Result<T, AdmitError> {
        let after = self.config.call_timeout;
        match tokio::time::timeout(after, answer).await {
            Ok(answer) => answer.map(tonic::Response::into_inner).map_err(failed),
            Err(_) => Err(AdmitError::TimedOut { call, after }),
        }
    }
}
