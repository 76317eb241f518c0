//! The CDI spec as a value, with the keys and the order of its wire format.

mod edits;
mod format;
mod null;
mod required_version;
mod transform;
mod validate;
mod write;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use self::null::{or_default, texts};
pub use self::{
    edits::{ContainerEdits, DeviceNode, Hook, HookStage, IntelRdt, Mount, NetDevice},
    format::Format,
    transform::PathSide,
    validate::InvalidSpec,
};
use crate::{DeviceName, Kind, Version};

/// A CDI spec: devices of one kind, and what a container needs that gets one.
///
/// The layout is that of CDI 1.1.0. Reading refuses unknown keys, and takes a key that is null as absent, as the CDI library
/// does. A value can be built freely; [`validate`](Self::validate) checks it, and [`write`](Self::write) calls that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Spec {
    /// The version that a reader needs; see [`required_version`](Self::required_version).
    pub cdi_version: Version,
    /// What the devices are.
    pub kind: Kind,
    /// Free notes; CDI 0.6.0.
    #[serde(default, deserialize_with = "texts", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The devices; at least one, each name once.
    #[serde(default, deserialize_with = "or_default")]
    pub devices: Vec<Device>,
    /// What every container gets that gets any of the devices.
    #[serde(default, deserialize_with = "or_default")]
    pub container_edits: ContainerEdits,
}

/// A device that a container can ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Device {
    /// Its name within the kind.
    pub name: DeviceName,
    /// Free notes; CDI 0.6.0.
    #[serde(default, deserialize_with = "texts", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// What the container gets; not empty.
    #[serde(default, deserialize_with = "or_default")]
    pub container_edits: ContainerEdits,
}
