use std::{pin::Pin, sync::Arc};

use gpu_kubelet::device_plugin::{
    AllocateRequest, AllocateResponse, ContainerPreferredAllocationRequest, ContainerPreferredAllocationResponse,
    DevicePlugin, DevicePluginOptions, Empty, ListAndWatchResponse, PreStartContainerRequest,
    PreStartContainerResponse, PreferredAllocationRequest, PreferredAllocationResponse,
};
use tokio::sync::watch;
use tokio_stream::{Stream, StreamExt, wrappers::WatchStream};
use tonic::{Request, Response, Status};

use crate::{Device, Resource};

/// The calls that every plugin here wants from the kubelet.
pub(crate) const OPTIONS: DevicePluginOptions = DevicePluginOptions {
    pre_start_required: false,
    get_preferred_allocation_available: true,
};

/// The device plugin protocol in front of a [`Resource`].
#[derive(Debug)]
pub(crate) struct Server<R> {
    resource: Arc<R>,
    /// Turns true, or loses its sender, when the streams are to end.
    stopped: watch::Receiver<bool>,
    /// How many streams are open.
    streams: Arc<watch::Sender<usize>>,
}

impl<R> Server<R> {
    pub(crate) fn new(resource: Arc<R>, stopped: watch::Receiver<bool>, streams: Arc<watch::Sender<usize>>) -> Self {
        Self {
            resource,
            stopped,
            streams,
        }
    }
}

/// Counts as an open stream as long as it lives.
struct OpenStream(Arc<watch::Sender<usize>>);

impl OpenStream {
    fn new(streams: &Arc<watch::Sender<usize>>) -> Self {
        streams.send_modify(|open| *open += 1);
        Self(Arc::clone(streams))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

type DeviceLists = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl<R: Resource> DevicePlugin for Server<R> {
    type ListAndWatchStream = DeviceLists;

    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(OPTIONS))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<DeviceLists>, Status> {
        let lists = WatchStream::new(self.resource.devices()).map(|devices| Some(list(&devices)));
        let end = WatchStream::new(self.stopped.clone())
            .filter(|stopped| *stopped)
            .map(|_| None)
            .chain(tokio_stream::once(None));
        let open = OpenStream::new(&self.streams);
        let until_stopped = lists.merge(end).map_while(move |list| {
            let _open = &open; // until the stream is dropped
            list.map(Ok)
        });
        Ok(Response::new(Box::pin(until_stopped)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let answer = |request: &ContainerPreferredAllocationRequest| {
            let size = usize::try_from(request.allocation_size).unwrap_or(0);
            let device_ids =
                self.resource
                    .preferred(&request.available_device_ids, &request.must_include_device_ids, size);
            ContainerPreferredAllocationResponse { device_ids }
        };
        let container_responses = request.get_ref().container_requests.iter().map(answer).collect();
        Ok(Response::new(PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        let mut container_responses = Vec::new();
        for container in &request.get_ref().container_requests {
            let response = self.resource.allocate(&container.device_ids).map_err(Status::unknown)?;
            tracing::info!(resource = %self.resource.name(), devices = ?container.device_ids, "allocated");
            container_responses.push(response);
        }
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

fn list(devices: &[Device]) -> ListAndWatchResponse {
    ListAndWatchResponse {
        devices: devices.iter().map(Into::into).collect(),
    }
}
