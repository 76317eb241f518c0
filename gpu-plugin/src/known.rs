//! Whether the kubelet still knows a resource that it has registered.

use std::{path::Path, time::Duration};

use gpu_kubelet::{
    connect,
    pod_resources::{AllocatableResourcesRequest, PodResourcesListerClient},
    tonic::Request,
};
use tokio::time;

use crate::{Resource, error::chain};

/// How often the kubelet is asked.
const ASK: Duration = Duration::from_secs(5);

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(5);

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

/// Whether the kubelet can hand out a device of this resource.
async fn knows(socket: &Path, resource: &str) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
    let mut client = PodResourcesListerClient::new(connect(socket).await?);
    let mut request = Request::new(AllocatableResourcesRequest {});
    request.set_timeout(ANSWER);
    let answer = time::timeout(ANSWER, client.get_allocatable_resources(request)).await??;
    let devices = answer.into_inner().devices;
    Ok(devices.iter().any(|device| device.resource_name == resource))
}
