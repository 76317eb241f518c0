use serde::Serialize;

use super::{
    DeviceSelector, ResourceName, Result, Warning,
    document::Value,
    key::{Field, Map, Walk},
};

/// The `sharing` section as written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WrittenSharing {
    /// Containers take turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_slicing: Option<Replicas>,
    /// Containers run at once, through the MPS daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mps: Option<Replicas>,
}

/// One way of sharing, as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replicas {
    /// Whether replicas are offered under the resource's name with `.shared`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rename_by_default: bool,
    /// Whether a container that asks for more than one replica is refused; by default with MPS, and not with time-slicing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_requests_greater_than_one: Option<bool>,
    /// What is shared, one at least.
    pub resources: Vec<SharedResource>,
}

/// A resource that is shared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SharedResource {
    /// The resource whose devices they are.
    pub name: ResourceName,
    /// The name under which the replicas are offered; `None` for the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rename: Option<ResourceName>,
    /// Which devices.
    pub devices: DeviceSelector,
    /// How often each is handed out, 2 or more.
    pub replicas: u32,
}

/// How the node's devices are shared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Sharing {
    /// Each goes to one container.
    #[default]
    None,
    /// Containers take turns.
    TimeSlicing(Shared),
    /// Containers run at once, through the MPS daemon.
    Mps(Shared),
}

/// What is shared, one way or the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shared {
    /// Whether a container that asks for more than one replica is refused.
    pub fail_requests_greater_than_one: bool,
    /// The resources, as written.
    pub resources: Vec<SharedResource>,
}

impl Sharing {
    /// What is shared; `None` where nothing is.
    pub fn shared(&self) -> Option<&Shared> {
        match self {
            Self::None => None,
            Self::TimeSlicing(shared) | Self::Mps(shared) => Some(shared),
        }
    }

    /// The first entry about a resource.
    pub fn resource(&self, name: &ResourceName) -> Option<&SharedResource> {
        self.shared()?.resources.iter().find(|resource| resource.name == *name)
    }

    /// The word that labels use: `none`, `time-slicing` or `mps`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::TimeSlicing(_) => "time-slicing",
            Self::Mps(_) => "mps",
        }
    }
}

impl WrittenSharing {
    pub(super) fn read(map: &Map<'_>, walk: &mut Walk) -> Result<Self> {
        // `null` is as good as nothing for `mps`, and not for `timeSlicing`: the one is a pointer upstream, the other is not.
        let time_slicing = map
            .written("timeSlicing")
            .map(|field| Replicas::read(&field, walk, "sharing.timeSlicing", "sharing.timeSlicing.resources[]"))
            .transpose()?;
        let mps = map
            .get("mps")
            .map(|field| Replicas::read(&field, walk, "sharing.mps", "sharing.mps.resources[]"))
            .transpose()?;
        Ok(Self { time_slicing, mps })
    }
}

impl Replicas {
    fn read(field: &Field<'_>, walk: &mut Walk, place: &'static str, item: &'static str) -> Result<Self> {
        let none = || field.error("no resources specified");
        let map = walk.map(field.node, place, &field.path)?.ok_or_else(none)?;
        let rename_by_default = map.bool("renameByDefault")?.unwrap_or(false);
        let entries = map.get("resources").ok_or_else(none)?.list()?;
        let mut resources = Vec::new();
        for entry in &entries {
            let resource = SharedResource::read(entry, walk, item, rename_by_default)?;
            if resources.iter().any(|earlier| resource.repeats(earlier)) {
                walk.warnings.push(Warning::SharedTwice {
                    key: entry.path.clone(),
                    line: Some(entry.node.line),
                    resource: resource.name.clone(),
                });
            }
            resources.push(resource);
        }
        if resources.is_empty() {
            return Err(none());
        }
        Ok(Self {
            rename_by_default,
            fail_requests_greater_than_one: map.bool("failRequestsGreaterThanOne")?,
            resources,
        })
    }
}

impl SharedResource {
    /// Whether it is about devices that an earlier entry shares, whichever there are.
    pub(super) fn repeats(&self, earlier: &Self) -> bool {
        self.name == earlier.name && self.devices.repeats(&earlier.devices)
    }

    fn read(field: &Field<'_>, walk: &mut Walk, place: &'static str, rename: bool) -> Result<Self> {
        let no_name = || field.error("no resource name specified");
        let map = walk.map(field.node, place, &field.path)?.ok_or_else(no_name)?;
        let name = map.resource_name("name")?.ok_or_else(no_name)?;
        let default = rename
            .then(|| name.shared())
            .transpose()
            .map_err(|error| field.error(error))?;
        Ok(Self {
            rename: map.resource_name("rename")?.or(default),
            devices: match map.get("devices") {
                Some(devices) => DeviceSelector::read(&devices)?,
                None => DeviceSelector::All,
            },
            replicas: replicas(
                &map.get("replicas")
                    .ok_or_else(|| field.error("no replicas specified"))?,
            )?,
            name,
        })
    }
}

fn replicas(field: &Field<'_>) -> Result<u32> {
    let Value::Integer(number) = field.node.value else {
        return Err(field.error("expected a whole number"));
    };
    if number < 2 {
        return Err(field.error("number of replicas must be >= 2"));
    }
    u32::try_from(number).map_err(|_| field.error("number of replicas is too large"))
}
