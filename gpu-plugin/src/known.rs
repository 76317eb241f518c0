//! What the kubelet knows of a resource that it has registered, and whether it needs it.

use std::{path::Path, time::Duration};

use gpu_kubelet::{
    connect,
    pod_resources::{AllocatableResourcesRequest, PodResourcesListerClient},
    tonic::{Request, transport::Channel},
};
use tokio::time;

use crate::{Resource, error::chain};

/// How often the kubelet is asked.
const ASK: Duration = Duration::from_secs(5);

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(5);

/// How often at least it is asked what is used for long.
#[cfg(feature = "gpu")]
const RARELY: Duration = Duration::from_secs(30);

/// How often in a row it has to know nothing: the list of devices may be on its way.
const ANSWERS: u32 = 2;

/// Completes when the kubelet can hand out none of a resource's devices, although some are healthy. Never where it is not told:
/// the socket is not mounted everywhere.
pub(crate) async fn forgotten(socket: Option<&Path>, resource: &impl Resource) {
    let Some(socket) = socket else {
        return std::future::pending().await;
    };
    let mut in_a_row = 0;
    while in_a_row < ANSWERS {
        time::sleep(ASK).await;
        let healthy = resource.devices().borrow().iter().any(|device| device.healthy);
        match knows(socket, resource.name().as_str()).await {
            Ok(false) if healthy => in_a_row += 1,
            Ok(_) => in_a_row = 0,
            Err(error) => {
                tracing::debug!("the kubelet does not tell what it knows: {}", chain(&*error));
                in_a_row = 0;
            }
        }
    }
}

/// Completes when no pod has a device of a resource that offers none any more. Never where it is not told.
///
/// As long as one has, its containers may start again, and the kubelet starts none once the resource has ended for minutes: it misses
/// the endpoint (`callPreStartContainerIfNeeded` in Kubernetes' `pkg/kubelet/cm/devicemanager/manager.go`).
#[cfg(feature = "gpu")]
pub(crate) async fn unused(socket: Option<&Path>, resource: &str) {
    let Some(socket) = socket else {
        return std::future::pending().await;
    };
    let (mut in_a_row, mut pause) = (0, ASK);
    while in_a_row < ANSWERS {
        time::sleep(pause).await;
        let used = uses(socket, resource).await;
        (in_a_row, pause) = match used {
            Ok(false) => (in_a_row + 1, ASK),
            Ok(true) => (0, RARELY.min(pause * 2)),
            Err(error) => {
                tracing::debug!("the kubelet does not tell what pods have: {}", chain(&*error));
                (0, RARELY.min(pause * 2))
            }
        };
    }
}

type Answer<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Whether the kubelet can hand out a device of this resource.
async fn knows(socket: &Path, resource: &str) -> Answer<bool> {
    let mut request = Request::new(AllocatableResourcesRequest {});
    request.set_timeout(ANSWER);
    let mut client = client(socket).await?;
    let answer = time::timeout(ANSWER, client.get_allocatable_resources(request)).await??;
    let devices = answer.into_inner().devices;
    Ok(devices.iter().any(|device| device.resource_name == resource))
}

/// Whether a container has a device of this resource.
#[cfg(feature = "gpu")]
async fn uses(socket: &Path, resource: &str) -> Answer<bool> {
    let mut request = Request::new(gpu_kubelet::pod_resources::ListPodResourcesRequest {});
    request.set_timeout(ANSWER);
    let mut client = client(socket).await?;
    let answer = time::timeout(ANSWER, client.list(request)).await??;
    let pods = answer.into_inner().pod_resources.into_iter();
    let mut devices = pods
        .flat_map(|pod| pod.containers)
        .flat_map(|container| container.devices);
    Ok(devices.any(|device| device.resource_name == resource))
}

async fn client(socket: &Path) -> Answer<PodResourcesListerClient<Channel>> {
    Ok(PodResourcesListerClient::new(connect(socket).await?))
}
