use std::{
    future::Future,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use gpu_kubelet::{
    Incoming, REGISTER_TIMEOUT, Registration,
    device_plugin::DevicePluginServer,
    listen,
    names::{KUBELET_SOCKET, POD_RESOURCES_SOCKET},
    register,
};
use tokio::{sync::watch, task::JoinHandle, time};

use crate::{
    Error, Resource, Result,
    directory_watch::DirectoryWatch,
    error::chain,
    identity::Identity,
    known,
    server::{OPTIONS, Server},
};

/// Between attempts that may succeed without anybody's help.
const RETRY: Duration = Duration::from_secs(1);

/// Between any two attempts, however busy the directory is.
const LEAST_PAUSE: Duration = Duration::from_millis(100);

/// Between registrations that the kubelet refused: it needs somebody's help, or the node is very busy.
const REFUSED_RETRY: Duration = Duration::from_secs(10);

/// How long the kubelet may listen to no stream before it is registered with again: it opens one as soon as it has
/// registered a plugin.
const DESERTED: Duration = Duration::from_secs(3);

/// How long open streams get to end.
const FAREWELL: Duration = Duration::from_secs(1);

/// Where a plugin serves and registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sockets {
    /// The kubelet's registration socket; the plugin's own socket lies beside it, where the kubelet looks for it.
    ///
    /// Default: `/var/lib/kubelet/device-plugins/kubelet.sock`.
    pub kubelet: PathBuf,
    /// Where the kubelet tells what it can hand out and what pods have, by which it is noticed that it has lost a registration, or
    /// needs one no more; where nobody listens there, or `None`, it is not.
    ///
    /// Default: `/var/lib/kubelet/pod-resources/kubelet.sock`.
    pub pod_resources: Option<PathBuf>,
}

impl Default for Sockets {
    fn default() -> Self {
        Self {
            kubelet: KUBELET_SOCKET.into(),
            pod_resources: Some(POD_RESOURCES_SOCKET.into()),
        }
    }
}

impl Sockets {
    fn directory(&self) -> &Path {
        self.kubelet.parent().unwrap_or(Path::new("."))
    }
}

/// Serves a resource to the kubelet until `stop` completes.
///
/// It serves first and registers then, since the kubelet calls back before it answers. A kubelet that is absent is waited
/// for; one that is restarted, that removed the socket, that no longer listens to the list of devices, or that listens and
/// knows none of them, is registered with again. What it waits for is logged once.
///
/// Dropping the future ends the server too, without the second that `stop` gives to open streams.
///
/// # Errors
/// [`Error::Socket`] where the plugin's own socket cannot be made and waiting will not help: something that is not a
/// socket is in its place, or the directory may not be written. A kubelet that refuses the plugin is asked again, not an
/// error.
pub async fn serve<R: Resource>(resource: Arc<R>, sockets: &Sockets, stop: impl Future<Output = ()>) -> Result<()> {
    serve_observed(resource, sockets, &watch::Sender::new(false), stop).await
}

/// The same, and tells whether the kubelet has it: that it registered, and listens.
///
/// # Errors
/// As [`serve`].
pub async fn serve_observed<R: Resource>(
    resource: Arc<R>,
    sockets: &Sockets,
    registered: &watch::Sender<bool>,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let mut stop = pin!(stop);
    let path = sockets.directory().join(resource.name().socket_name());
    let mut directory = DirectoryWatch::new(sockets.directory());
    loop {
        let incoming = tokio::select! {
            () = &mut stop => return Ok(()),
            incoming = listen_when_possible(&path, &mut directory) => incoming?,
        };
        let round = Round {
            sockets,
            path: &path,
            own: Identity::of(&path),
        };
        let mut server = Running::start(Arc::clone(&resource), incoming);
        let streams = server.streams.subscribe();
        let over = tokio::select! {
            () = &mut stop => true,
            () = round.keep_registered(&*resource, &mut directory, &streams, registered) => false,
            () = server.ended() => {
                time::sleep(RETRY).await;
                false
            }
        };
        registered.send_replace(false);
        server.stop().await;
        if over {
            return Ok(());
        }
    }
}

/// Waits for the kubelet's directory, and for a predecessor to go.
async fn listen_when_possible(path: &Path, directory: &mut DirectoryWatch) -> Result<Incoming> {
    let mut waiting_for = None;
    loop {
        match listen(path).await {
            Ok(incoming) => return Ok(incoming),
            Err(error @ (gpu_kubelet::Error::NoDirectory { .. } | gpu_kubelet::Error::InUse { .. })) => {
                if waiting_for.replace(error.to_string()) != Some(error.to_string()) {
                    tracing::warn!("{error}; waiting");
                }
                directory.changed().await;
            }
            Err(source) => {
                return Err(Error::Socket {
                    path: path.to_owned(),
                    source,
                });
            }
        }
    }
}

/// From one opening of the plugin's socket to the next.
struct Round<'a> {
    sockets: &'a Sockets,
    /// The plugin's own socket.
    path: &'a Path,
    own: Option<Identity>,
}

impl Round<'_> {
    /// Registers, and returns when that has to be done again on a new socket. `streams` counts those that are open.
    async fn keep_registered(
        &self,
        resource: &impl Resource,
        directory: &mut DirectoryWatch,
        streams: &watch::Receiver<usize>,
        registered: &watch::Sender<bool>,
    ) {
        loop {
            registered.send_replace(false);
            // Looked at before registering: a kubelet that is restarted meanwhile shows as a change.
            let kubelet = Identity::of(&self.sockets.kubelet);
            if !self.register_when_possible(resource, directory).await {
                return;
            }
            registered.send_replace(true);
            let mut deserted = pin!(deserted(streams.clone()));
            let mut forgotten = pin!(known::forgotten(self.sockets.pod_resources.as_deref(), resource));
            loop {
                tokio::select! {
                    () = directory.changed() => {}
                    () = &mut forgotten => {
                        // On a new socket, so that the end of the old stream does not count as the end of the new one.
                        tracing::warn!("the kubelet has lost {}: registering again", resource.name());
                        return;
                    }
                    () = &mut deserted => {
                        tracing::warn!("the kubelet does not listen to this plugin: registering again");
                        break;
                    }
                }
                if !self.in_place() {
                    tracing::info!(socket = %self.path.display(), "the socket is gone: the kubelet was restarted");
                    return;
                }
                match Identity::of(&self.sockets.kubelet) {
                    None => {} // it has stopped; its return makes a new one
                    now if now == kubelet => {}
                    Some(_) => {
                        tracing::info!("there is a new kubelet socket");
                        break;
                    }
                }
            }
        }
    }

    /// Whether it registered; not if the plugin's own socket went away meanwhile.
    async fn register_when_possible(&self, resource: &impl Resource, directory: &mut DirectoryWatch) -> bool {
        let registration = Registration {
            endpoint: resource.name().socket_name(),
            resource_name: resource.name().to_string(),
            options: OPTIONS,
        };
        let mut said = None;
        while self.in_place() {
            let before = Identity::of(&self.sockets.kubelet);
            match register(&self.sockets.kubelet, &registration, REGISTER_TIMEOUT).await {
                Ok(()) => {
                    tracing::info!(resource = %resource.name(), "registered with the kubelet");
                    return true;
                }
                Err(error) => {
                    let text = chain(&error);
                    if said.as_ref() != Some(&text) {
                        tracing::warn!("cannot register {}: {text}; trying again", resource.name());
                        said = Some(text);
                    }
                    let pause = if error.is_transient() { RETRY } else { REFUSED_RETRY };
                    self.rest(pause, before, directory).await;
                }
            }
        }
        false
    }

    /// Waits, but no longer once the kubelet has another socket than `before`: so an absent one announces itself.
    async fn rest(&self, pause: Duration, before: Option<Identity>, directory: &mut DirectoryWatch) {
        time::sleep(LEAST_PAUSE).await;
        let announced = async {
            while Identity::of(&self.sockets.kubelet) == before && self.in_place() {
                directory.changed().await;
            }
        };
        let _ = time::timeout(pause, announced).await;
    }

    fn in_place(&self) -> bool {
        self.own.is_some() && Identity::of(self.path) == self.own
    }
}

/// Completes when no stream has been open for a while.
async fn deserted(mut streams: watch::Receiver<usize>) {
    loop {
        // An error means that the server is gone, which is another's to see.
        if streams.wait_for(|open| *open == 0).await.is_err() {
            return std::future::pending().await;
        }
        if time::timeout(DESERTED, streams.wait_for(|open| *open > 0))
            .await
            .is_err()
        {
            return;
        }
    }
}

/// A gRPC server on its own task. Dropped, it ends: its streams at once, since `stopped` goes with it.
struct Running {
    stopped: watch::Sender<bool>,
    streams: Arc<watch::Sender<usize>>,
    task: JoinHandle<()>,
}

impl Running {
    fn start<R: Resource>(resource: Arc<R>, incoming: Incoming) -> Self {
        let (stopped, stop) = watch::channel(false);
        let streams = Arc::new(watch::Sender::new(0));
        let service = DevicePluginServer::new(Server::new(resource, stop.clone(), Arc::clone(&streams)));
        let mut stop = stop;
        let stopping = async move {
            // An error means that this `Running` was dropped, which stops it as well.
            let _ = stop.wait_for(|stopped| *stopped).await;
        };
        let serving = tonic::transport::Server::builder().serve_with_incoming_shutdown(service, incoming, stopping);
        let task = tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::warn!("the plugin's server ended: {}", chain(&error));
            }
        });
        Self { stopped, streams, task }
    }

    /// Completes when the server ends by itself, which it should not.
    async fn ended(&mut self) {
        let _ = (&mut self.task).await;
    }

    /// Ends open streams, which tells the kubelet at once, and then the server.
    async fn stop(mut self) {
        self.stopped.send_replace(true);
        if !self.task.is_finished() && time::timeout(FAREWELL, &mut self.task).await.is_err() {
            tracing::debug!("open streams did not end in time");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}
