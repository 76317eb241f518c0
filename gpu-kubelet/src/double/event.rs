use std::time::Instant;

use crate::device_plugin::{ContainerAllocateResponse, Device, DevicePluginOptions, RegisterRequest};

/// Something that happened to a kubelet double.
#[derive(Debug, Clone)]
pub struct Event {
    /// When it was done with.
    pub at: Instant,
    /// What.
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// The kubelet listens on its sockets.
    Started,
    /// The kubelet was stopped; plugins have lost their streams.
    Stopped,
    /// A plugin was registered.
    Registered {
        /// The resource.
        resource: String,
        /// The request as it came.
        request: RegisterRequest,
        /// What the plugin answered when asked for its options: those that count.
        options: DevicePluginOptions,
    },
    /// A plugin was refused.
    Refused {
        /// The request as it came.
        request: RegisterRequest,
        /// What it was told.
        reason: String,
    },
    /// A plugin sent its devices.
    Listed {
        /// The resource.
        resource: String,
        /// The devices, in the plugin's order.
        devices: Vec<Device>,
    },
    /// A plugin's stream of devices ended.
    StreamEnded {
        /// The resource.
        resource: String,
    },
    /// A plugin was asked which devices it prefers.
    Preferred {
        /// The resource.
        resource: String,
        /// What it was offered, in that order.
        available: Vec<String>,
        /// How many are needed.
        count: usize,
        /// Its answer; empty if it had none.
        preferred: Vec<String>,
    },
    /// A plugin was asked for devices and answered.
    Allocated {
        /// The resource.
        resource: String,
        /// The devices, in the order of the request.
        device_ids: Vec<String>,
        /// Its answer.
        response: ContainerAllocateResponse,
    },
}
