use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, FileTypeExt},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};
use tonic::{
    Request, Response, Status,
    transport::{Channel, Server},
};

use super::{Shared, StartError, error::in_go, event::EventKind, pod_resources::Lister, state::State};
use crate::{
    connect,
    device_plugin::{
        DevicePluginClient, DevicePluginOptions, Empty, RegisterRequest, Registration, RegistrationServer,
    },
    is_extended_resource_name, listen, names,
    pod_resources::PodResourcesListerServer,
};

/// One run of the kubelet, from start to stop: its servers and its connections to plugins.
#[derive(Debug)]
pub(super) struct Session {
    servers: JoinSet<()>,
    shutdown: watch::Sender<()>,
    streams: Arc<Mutex<JoinSet<()>>>,
}

/// How long connections get to end by themselves.
const GRACE: Duration = Duration::from_millis(500);

/// How soon an endpoint is tried again that does not listen yet.
const REDIAL: Duration = Duration::from_millis(10);

impl Session {
    pub(super) async fn start(shared: &Arc<Shared>) -> Result<Self, StartError> {
        let config = &shared.config;
        prepare_directory(&config.device_plugin_dir)?;
        remove_sockets(&config.device_plugin_dir)?;
        if let Some(directory) = config.pod_resources_socket.parent() {
            prepare_directory(directory)?;
        }
        let registration = listen(config.registration_socket()).await?;
        let pod_resources = listen(&config.pod_resources_socket).await?;

        let streams = Arc::default();
        let run = shared.read(|state| state.run);
        let (shutdown, stopping) = watch::channel(());
        let registrar = Registrar {
            shared: Arc::clone(shared),
            run,
            streams: Arc::clone(&streams),
            stopping: stopping.clone(),
        };
        let mut servers = JoinSet::new();
        let service = RegistrationServer::new(registrar);
        let served = Server::builder().serve_with_incoming_shutdown(service, registration, ended(stopping.clone()));
        servers.spawn(async move { drop(served.await) });
        let service = PodResourcesListerServer::new(Lister(Arc::clone(shared)));
        let served = Server::builder().serve_with_incoming_shutdown(service, pod_resources, ended(stopping));
        servers.spawn(async move { drop(served.await) });
        shared.update(State::started);
        Ok(Self {
            servers,
            shutdown,
            streams,
        })
    }

    pub(super) async fn stop(mut self, shared: &Shared) {
        shared.update(State::stopped);
        self.shutdown.send_replace(());
        let mut streams = std::mem::take(&mut *self.streams.lock().unwrap_or_else(PoisonError::into_inner));
        streams.shutdown().await;
        let ended = async { while self.servers.join_next().await.is_some() {} };
        if timeout(GRACE, ended).await.is_err() {
            self.servers.shutdown().await;
        }
    }
}

async fn ended(mut stopping: watch::Receiver<()>) {
    // An error means that the session is gone, which is an end as well.
    let _ = stopping.changed().await;
}

/// The mode is the real kubelet's.
fn prepare_directory(path: &Path) -> Result<(), StartError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o750).create(path);
    made.map_err(|source| StartError::Prepare {
        path: path.to_owned(),
        source,
    })
}

/// Removes sockets, whether or not anybody listens on them; plugins take it for the sign of a new kubelet.
fn remove_sockets(directory: &Path) -> Result<(), StartError> {
    let failed = |path: &Path, source| StartError::Prepare {
        path: path.to_owned(),
        source,
    };
    for entry in fs::read_dir(directory).map_err(|source| failed(directory, source))? {
        let path = entry.map_err(|source| failed(directory, source))?.path();
        // Follows links, as the real kubelet does; what leads nowhere is left alone.
        if fs::metadata(&path).is_ok_and(|metadata| metadata.file_type().is_socket()) {
            match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(failed(&path, source)),
                _ => {}
            }
        }
    }
    Ok(())
}

/// The registration service.
#[derive(Debug)]
struct Registrar {
    shared: Arc<Shared>,
    run: u64,
    streams: Arc<Mutex<JoinSet<()>>>,
    stopping: watch::Receiver<()>,
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let request = request.into_inner();
        let accepted = tokio::select! {
            accepted = self.accept(&request) => accepted,
            () = ended(self.stopping.clone()) => return Err(Status::unavailable("the kubelet was stopped")),
        };
        match accepted {
            Ok(()) => Ok(Response::new(Empty {})),
            Err(reason) => {
                let told = reason.clone();
                self.shared
                    .update(|state| state.record(EventKind::Refused { request, reason }));
                Err(Status::unknown(told))
            }
        }
    }
}

impl Registrar {
    async fn accept(&self, request: &RegisterRequest) -> Result<(), String> {
        if request.version != names::DEVICE_PLUGIN_VERSION {
            return Err(format!(
                "requested API version {:?} is not supported by kubelet. Supported version is [{:?}]",
                request.version,
                names::DEVICE_PLUGIN_VERSION
            ));
        }
        if !is_extended_resource_name(&request.resource_name) {
            return Err(format!("the ResourceName {:?} is invalid", request.resource_name));
        }
        let (client, options) = self.dial(&request.endpoint).await?;
        // Locked throughout, so that a stop either finds the stream or prevents it.
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        while streams.try_join_next().is_some() {} // those that have ended
        if self
            .shared
            .update(|state| state.registered(self.run, request, client.clone(), options))
        {
            let (shared, resource) = (Arc::clone(&self.shared), request.resource_name.clone());
            streams.spawn(watch_devices(shared, self.run, resource, client));
        }
        Ok(())
    }

    /// Reaches the plugin and asks for its options.
    async fn dial(&self, endpoint: &str) -> Result<(DevicePluginClient<Channel>, DevicePluginOptions), String> {
        let deadline = Instant::now() + self.shared.config.dial_timeout;
        let socket = self
            .shared
            .config
            .device_plugin_dir
            .join(endpoint.trim_start_matches('/'));
        let reached = timeout_at(deadline, async {
            let mut client = DevicePluginClient::new(persist(&socket).await);
            let options = client.get_device_plugin_options(Empty {}).await;
            options.map(|options| (client, options.into_inner()))
        });
        match reached.await {
            Ok(Ok(reached)) => Ok(reached),
            Ok(Err(status)) => Err(format!("failed to get device plugin options: {}", in_go(&status))),
            Err(_) => Err("failed to dial device plugin: context deadline exceeded".to_owned()),
        }
    }
}

/// Tries until somebody listens; the caller has the deadline.
async fn persist(socket: &Path) -> Channel {
    loop {
        match connect(socket).await {
            Ok(channel) => return channel,
            Err(_) => sleep(REDIAL).await,
        }
    }
}

async fn watch_devices(shared: Arc<Shared>, run: u64, resource: String, mut client: DevicePluginClient<Channel>) {
    if let Ok(stream) = client.list_and_watch(Empty {}).await {
        let mut stream = stream.into_inner();
        while let Ok(Some(list)) = stream.message().await {
            shared.update(|state| state.listed(run, &resource, list.devices));
        }
    }
    shared.update(|state| state.stream_ended(run, &resource));
}
