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

impl Spec {
    /// Devices of a kind, in the oldest version that has all that they use.
    ///
    /// Who adds something afterwards sets [`cdi_version`](Self::cdi_version) to
    /// [`required_version`](Self::required_version) anew.
    ///
    /// # Example
    /// ```
    /// use gpu_cdi::{ContainerEdits, Device, DeviceNode, Spec};
    ///
    /// let node = DeviceNode {
    ///     path: "/dev/nic0".to_owned(),
    ///     ..DeviceNode::default()
    /// };
    /// let edits = ContainerEdits {
    ///     device_nodes: vec![node],
    ///     env: vec!["NIC=0".to_owned()],
    ///     ..ContainerEdits::default()
    /// };
    /// let spec = Spec::new("example.com/nic".parse()?, vec![Device::new("nic0".parse()?, edits)]);
    /// spec.validate()?;
    /// assert_eq!(spec.cdi_version.as_str(), "0.3.0");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(kind: Kind, devices: Vec<Device>) -> Self {
        let mut spec = Self {
            cdi_version: Version::CURRENT,
            kind,
            annotations: BTreeMap::new(),
            devices,
            container_edits: ContainerEdits::default(),
        };
        spec.cdi_version = spec.required_version();
        spec
    }
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

impl Device {
    /// A device without annotations.
    pub fn new(name: DeviceName, container_edits: ContainerEdits) -> Self {
        Self {
            name,
            annotations: BTreeMap::new(),
            container_edits,
        }
    }
}
