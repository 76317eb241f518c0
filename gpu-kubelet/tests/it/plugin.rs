//! A device plugin for a made-up device, which does as each test wants.

use std::{path::Path, pin::Pin, time::Duration};

use gpu_kubelet::{
    Registration,
    device_plugin::{
        AllocateRequest, AllocateResponse, ContainerAllocateResponse, ContainerPreferredAllocationResponse, Device,
        DevicePlugin, DevicePluginOptions, DevicePluginServer, Empty, ListAndWatchResponse, NumaNode,
        PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest, PreferredAllocationResponse,
        TopologyInfo,
    },
    double::Kubelet,
    listen, names, register,
    tonic::{self, Request, Response, Status, transport::Server},
};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
};
use tokio_stream::{Stream, StreamExt, wrappers::WatchStream};

pub(crate) const WIDGET: &str = "example.com/widget";

/// Long enough for a loaded machine; nothing waits this long unless it fails.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) fn healthy(id: &str) -> Device {
    Device {
        id: id.to_owned(),
        health: names::HEALTHY.to_owned(),
        topology: None,
    }
}

pub(crate) fn unhealthy(id: &str) -> Device {
    Device {
        health: names::UNHEALTHY.to_owned(),
        ..healthy(id)
    }
}

pub(crate) fn on_numa_nodes(device: Device, nodes: &[i64]) -> Device {
    let nodes = nodes.iter().map(|id| NumaNode { id: *id }).collect();
    Device {
        topology: Some(TopologyInfo { nodes }),
        ..device
    }
}

/// What a plugin answers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Behaviour {
    pub(crate) options: DevicePluginOptions,
    /// The answer to `GetPreferredAllocation`: ids, or an error.
    pub(crate) preferred: Option<Result<Vec<String>, String>>,
    pub(crate) allocate: Allocate,
    pub(crate) pre_start_error: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub(crate) enum Allocate {
    #[default]
    NameDevices,
    Fail(String),
    AnswerNothing,
    Hang,
}

impl Behaviour {
    pub(crate) fn preferring(ids: &[&str]) -> Self {
        let options = DevicePluginOptions {
            get_preferred_allocation_available: true,
            ..Default::default()
        };
        let preferred = Some(Ok(ids.iter().map(|id| (*id).to_owned()).collect()));
        Self {
            options,
            preferred,
            ..Default::default()
        }
    }
}

/// A plugin that serves. Dropped or stopped, its streams end.
#[derive(Debug)]
pub(crate) struct Plugin {
    devices: watch::Sender<Vec<Device>>,
    shutdown: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl Plugin {
    pub(crate) async fn serve(socket: impl AsRef<Path>, devices: Vec<Device>, behaviour: Behaviour) -> Self {
        let incoming = listen(socket).await.expect("a socket to serve on");
        let (devices, list) = watch::channel(devices);
        let (shutdown, stopping) = oneshot::channel::<()>();
        let service = DevicePluginServer::new(Service { list, behaviour });
        let server = tokio::spawn(async move {
            let stopping = async { drop(stopping.await) };
            Server::builder()
                .serve_with_incoming_shutdown(service, incoming, stopping)
                .await
                .expect("a server");
        });
        Self {
            devices,
            shutdown,
            server,
        }
    }

    pub(crate) async fn serve_and_register(kubelet: &Kubelet, devices: Vec<Device>, behaviour: Behaviour) -> Self {
        let plugin = Self::serve(kubelet.device_plugin_dir().join("widgets.sock"), devices, behaviour).await;
        register_widgets(kubelet).await;
        plugin
    }

    /// Sends another list.
    pub(crate) fn list(&self, devices: Vec<Device>) {
        self.devices.send_replace(devices);
    }

    /// Waits until the server and all its connections have ended.
    pub(crate) async fn stop(self) {
        drop((self.devices, self.shutdown));
        tokio::time::timeout(SOON, self.server)
            .await
            .expect("an end in time")
            .expect("an orderly end");
    }

    /// How many `ListAndWatch` streams are open.
    pub(crate) async fn wait_until_unwatched(&self) {
        let closed = async {
            while self.devices.receiver_count() > 1 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, closed)
            .await
            .expect("the kubelet to let go of the stream");
    }
}

/// Registers what serves on `widgets.sock`.
pub(crate) async fn register_widgets(kubelet: &Kubelet) {
    let registration = Registration::new("widgets.sock", WIDGET);
    register(kubelet.registration_socket(), &registration, SOON)
        .await
        .expect("a registration");
}

struct Service {
    list: watch::Receiver<Vec<Device>>,
    behaviour: Behaviour,
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(self.behaviour.options))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let lists = WatchStream::new(self.list.clone()).map(|devices| Ok(ListAndWatchResponse { devices }));
        Ok(Response::new(Box::pin(lists)))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        match self.behaviour.preferred.clone() {
            Some(Ok(device_ids)) => {
                let container_responses = vec![ContainerPreferredAllocationResponse { device_ids }];
                Ok(Response::new(PreferredAllocationResponse { container_responses }))
            }
            Some(Err(message)) => Err(Status::internal(message)),
            None => Err(Status::unimplemented("no preference")),
        }
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        let requests = request.into_inner().container_requests;
        assert_eq!(requests.len(), 1, "the kubelet asks for one container at a time");
        let answer = match &self.behaviour.allocate {
            Allocate::NameDevices => requests.iter().map(|request| named(&request.device_ids)).collect(),
            Allocate::Fail(message) => return Err(Status::unknown(message.clone())),
            Allocate::AnswerNothing => Vec::new(),
            Allocate::Hang => std::future::pending().await,
        };
        Ok(Response::new(AllocateResponse {
            container_responses: answer,
        }))
    }

    async fn pre_start_container(
        &self,
        request: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        match &self.behaviour.pre_start_error {
            Some(message) => {
                let ids = request.into_inner().device_ids.join(",");
                Err(Status::failed_precondition(format!("{message}: {ids}")))
            }
            None => Ok(Response::new(PreStartContainerResponse {})),
        }
    }
}

fn named(device_ids: &[String]) -> ContainerAllocateResponse {
    let mut ids = device_ids.to_vec();
    ids.sort();
    ContainerAllocateResponse {
        envs: [("WIDGETS".to_owned(), ids.join(","))].into(),
        ..Default::default()
    }
}
