use std::{io, path::PathBuf, time::Duration};

use tonic::{Code, Status};

use super::PodName;

/// Why a kubelet double did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A directory could not be made, or its sockets not be removed.
    #[error("cannot prepare `{}`", path.display())]
    Prepare {
        /// The directory or file.
        path: PathBuf,
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
    /// A socket could not be made.
    #[error(transparent)]
    Socket(#[from] crate::Error),
}

/// Why a pod was not admitted, in the real kubelet's words where it has any.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmitError {
    /// No plugin has listed devices of the resource.
    #[error("cannot allocate unregistered device {resource}")]
    Unregistered {
        /// The resource.
        resource: String,
    },
    /// All devices are unhealthy, as they are while the plugin is away.
    #[error("no healthy devices present; cannot allocate unhealthy devices {resource}")]
    NoHealthyDevices {
        /// The resource.
        resource: String,
    },
    /// The container restarts, and a device that it had is not healthy any more.
    #[error("previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}")]
    NoLongerHealthy {
        /// The resource.
        resource: String,
    },
    /// The container asks for another number of devices than it has.
    #[error("pod {:?} container {container:?} changed request for resource {resource:?} from {had} to {requested}", pod.to_string())]
    RequestChanged {
        /// The pod; the real kubelet names its UID.
        pod: PodName,
        /// The container.
        container: String,
        /// The resource.
        resource: String,
        /// How many devices it has.
        had: usize,
        /// How many it asked for.
        requested: usize,
    },
    /// Too few devices are healthy and free.
    #[error("requested number of devices unavailable for {resource}. Requested: {requested}, Available: {available}")]
    Unavailable {
        /// The resource.
        resource: String,
        /// How many were asked for.
        requested: usize,
        /// How many are healthy and free.
        available: usize,
    },
    /// The plugin has devices listed but its stream has ended.
    #[error("endpoint {resource} has been stopped")]
    EndpointStopped {
        /// The resource.
        resource: String,
    },
    /// The plugin failed to say what it prefers.
    #[error("device plugin GetPreferredAllocation rpc failed with err: {}", in_go(status))]
    PreferredAllocation {
        /// The plugin's answer.
        status: Status,
    },
    /// The plugin refused the devices.
    #[error("Allocate failed due to {}, which is unexpected", in_go(status))]
    Allocate {
        /// The plugin's answer.
        status: Status,
    },
    /// The plugin answered `Allocate` for no container.
    #[error("no containers return in allocation response for {resource}")]
    EmptyAnswer {
        /// The resource.
        resource: String,
    },
    /// The plugin failed to ready the devices.
    #[error("device plugin PreStartContainer rpc failed with err: {}", in_go(status))]
    PreStart {
        /// The plugin's answer.
        status: Status,
    },
    /// The plugin did not answer. A real kubelet would wait on.
    #[error("no answer to {call} within {after:?}")]
    TimedOut {
        /// The call.
        call: &'static str,
        /// How long it was waited for.
        after: Duration,
    },
    /// The kubelet double is stopped.
    #[error("the kubelet is stopped")]
    Stopped,
}

/// What was waited for did not come.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("waited {within:?} for {what} in vain; {seen}")]
pub struct WaitError {
    /// What was waited for.
    pub what: String,
    /// How long.
    pub within: Duration,
    /// The kubelet's state at the end.
    pub seen: String,
}

/// A status as Go programs print it.
pub(super) fn in_go(status: &Status) -> String {
    let code = match status.code() {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    };
    format!("rpc error: code = {code} desc = {}", status.message())
}
