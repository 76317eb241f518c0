use std::{path::Path, time::Duration};

use tonic::Code;

use crate::{
    Error, Result, connect,
    device_plugin::{DevicePluginOptions, RegisterRequest, RegistrationClient},
    names,
};

/// A deadline for [`register`] that lets the kubelet speak first: it gives up on the plugin after 10 s and says why.
pub const REGISTER_TIMEOUT: Duration = Duration::from_secs(15);

/// What a device plugin announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The file name of the plugin's socket, in the directory of the kubelet's socket.
    pub endpoint: String,
    /// The extended resource, such as `example.com/widget`.
    pub resource_name: String,
    /// The optional calls wanted. The kubelet asks for them again and goes by that answer.
    pub options: DevicePluginOptions,
}

impl Registration {
    /// An announcement without optional calls.
    pub fn new(endpoint: impl Into<String>, resource_name: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            resource_name: resource_name.into(),
            options: DevicePluginOptions::default(),
        }
    }
}

impl From<&Registration> for RegisterRequest {
    fn from(registration: &Registration) -> Self {
        Self {
            version: names::DEVICE_PLUGIN_VERSION.to_owned(),
            endpoint: registration.endpoint.clone(),
            resource_name: registration.resource_name.clone(),
            options: Some(registration.options),
        }
    }
}

/// Announces a device plugin to the kubelet that listens on `kubelet_socket`.
///
/// The plugin must already be serving, in another task: the kubelet calls it back before it answers. A kubelet that is
/// restarted forgets the plugin and has to be told again. `timeout` is for all of it; see [`REGISTER_TIMEOUT`].
///
/// # Errors
/// [`Error::Absent`] without a kubelet, [`Error::Refused`] with the kubelet's words, [`Error::TimedOut`],
/// [`Error::Broken`] if the kubelet went away meanwhile, and [`Error::Connect`]. [`Error::is_transient`] tells whether
/// it makes sense to wait and try again.
pub async fn register(kubelet_socket: impl AsRef<Path>, registration: &Registration, timeout: Duration) -> Result<()> {
    let path = kubelet_socket.as_ref();
    let announced = tokio::time::timeout(timeout, announce(path, registration));
    announced.await.unwrap_or_else(|_| {
        Err(Error::TimedOut {
            what: WHAT,
            path: path.to_owned(),
            after: timeout,
        })
    })
}

const WHAT: &str = "a registration";

async fn announce(path: &Path, registration: &Registration) -> Result<()> {
    let mut kubelet = RegistrationClient::new(connect(path).await?);
    match kubelet.register(RegisterRequest::from(registration)).await {
        Ok(_) => Ok(()),
        Err(status) if is_broken(&status) => Err(Error::Broken {
            what: WHAT,
            path: path.to_owned(),
            status,
        }),
        Err(status) => Err(Error::Refused {
            resource: registration.resource_name.clone(),
            status,
        }),
    }
}

/// Whether the transport made up this status; one that came from the other side has no source.
fn is_broken(status: &tonic::Status) -> bool {
    std::error::Error::source(status).is_some() || matches!(status.code(), Code::Unavailable | Code::Cancelled)
}
