//! What a node offers: an inventory and a configuration in, resources with their devices out; no I/O.

mod all;
mod choice;
mod device;
mod mig;
mod share;

use std::{collections::BTreeMap, fmt};

use gpu_cdi::Platform;
use gpu_core::{Gpu, GpuUuid, Inventory};
use gpu_sharing::config::{Config, MigStrategy, NotThere, ParseResourceNameError, ResourceName, ResourceRule};

pub use self::{
    choice::{GpuChoice, GpuRef, ParseGpuRefError},
    device::{Instance, OfferedDevice},
};

/// How many devices a resource may have, replicas counted. The kubelet takes no list of more than 4 MiB (gRPC's default in Go, which
/// `pkg/kubelet/cm/devicemanager/plugin/v1beta1/client.go` leaves), and a device of a list takes 68 bytes.
const MOST_DEVICES: usize = 50_000;

/// The resources of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offer {
    /// One for each name, by name; each has a device at least.
    pub resources: Vec<ResourceSet>,
    /// What a person should know of it.
    pub remarks: Vec<Remark>,
}

/// One resource: a name, and what pods get who ask for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSet {
    /// The name that pods ask for.
    pub name: ResourceName,
    /// The devices, by PCI address and MIG slot.
    pub devices: Vec<OfferedDevice>,
    /// Whether a container that asks for more than one is refused where one of them is a replica.
    pub fail_requests_greater_than_one: bool,
}

impl ResourceSet {
    /// The number of ids that the kubelet is told.
    pub fn len(&self) -> usize {
        self.devices
            .iter()
            .map(|device| device.replicas.unwrap_or(1) as usize)
            .sum()
    }

    /// Whether it has no device.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }
}

/// What is not offered, or not as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remark {
    /// A GPU for a workstation's displays.
    DisplayOnly {
        /// NVML's index.
        index: u32,
        /// Which.
        gpu: GpuUuid,
        /// Its model.
        name: String,
    },
    /// A GPU that was left out by choice.
    NotChosen {
        /// NVML's index.
        index: u32,
        /// Which.
        gpu: GpuUuid,
    },
    /// A GPU that was chosen and is not there.
    NoSuchGpu(GpuRef),
    /// A GPU in MIG mode without MIG devices (strategy `mixed`).
    NoMigDevices {
        /// NVML's index.
        index: u32,
        /// Which.
        gpu: GpuUuid,
    },
    /// MIG devices of a profile that no resource takes, such as compute instances that are smaller than their GPU instance.
    NoResource {
        /// The profile; `None` where the driver does not tell it.
        profile: Option<String>,
        /// How many there are.
        count: usize,
    },
    /// `sharing` names a resource that this node does not have.
    NothingToShare(ResourceName),
    /// `devices` of a shared resource selects what this node does not have.
    NotThere {
        /// The resource.
        resource: ResourceName,
        /// Which.
        what: NotThere,
    },
    /// `resources` names devices that this node does not have.
    NothingToName {
        /// The section of `resources`: `gpus` or `mig`.
        section: &'static str,
        /// The rule's pattern.
        pattern: String,
    },
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DisplayOnly { index, gpu, name } => {
                write!(f, "GPU {index} ({gpu}) is not offered: `{name}` is for displays")
            }
            Self::NotChosen { index, gpu } => write!(f, "GPU {index} ({gpu}) is not offered: it is left out by choice"),
            Self::NoSuchGpu(gpu) => write!(f, "this node has no GPU `{gpu}` to include or exclude"),
            Self::NoMigDevices { index, gpu } => {
                write!(
                    f,
                    "GPU {index} ({gpu}) is not offered: it is in MIG mode and has no MIG devices configured"
                )
            }
            Self::NoResource {
                profile: Some(profile),
                count,
            } => write!(
                f,
                "{count} MIG devices are not offered: MIG profile '{profile}' does not match any resource patterns"
            ),
            Self::NoResource { profile: None, count } => {
                write!(
                    f,
                    "{count} MIG devices are not offered: the driver does not tell their profile"
                )
            }
            Self::NothingToShare(name) => {
                write!(
                    f,
                    "`sharing` names `{name}`, which this node does not have: nothing of it is shared"
                )
            }
            Self::NotThere { resource, what } => write!(f, "not all of `{resource}` can be shared: {what}"),
            Self::NothingToName { section, pattern } => {
                write!(
                    f,
                    "the pattern `{pattern}` in `resources.{section}` fits nothing of this node"
                )
            }
        }
    }
}

/// Why a node cannot be offered as it is configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// Strategy `single`: a GPU in MIG mode is not divided. Divide it, or switch the mode off.
    #[error(
        "at least one device with migEnabled=true was not configured correctly: device {index} has no MIG devices configured"
    )]
    NoMigDevices {
        /// NVML's index of the GPU.
        index: u32,
    },
    /// Strategy `single`: the MIG devices of the node are not all alike. Use `mixed`, or divide all GPUs alike.
    #[error("more than one MIG device type present on node")]
    NotUniform,
    /// Strategy `single`: some GPUs are in MIG mode and some are not. Use `mixed`, or switch the mode of the others.
    #[error("all devices on the node must be configured with the same migEnabled value")]
    NotAllMig,
    /// A profile's name makes no resource's.
    #[error("MIG profile '{profile}' does not match any resource patterns")]
    Profile {
        /// The profile.
        profile: String,
        /// Why its name makes none.
        #[source]
        source: ParseResourceNameError,
    },
    /// A resource would have more devices than the kubelet can be told. Share its GPUs by fewer.
    #[error("`{resource}` would have {devices} devices, and the kubelet can be told of {MOST_DEVICES}")]
    TooMany {
        /// The resource.
        resource: ResourceName,
        /// How many, replicas counted.
        devices: usize,
    },
    /// GPUs are chosen where they are one device. Offer it, or run no plugin there.
    #[error("none can be included or excluded of the GPUs of {platform}: they are one device")]
    NoChoice {
        /// What the machine is.
        platform: Platform,
    },
    /// GPUs are to be shared by MPS that cannot be. Share them by time-slicing.
    #[error("sharing using MPS is not supported for the GPUs of {platform}")]
    NoMps {
        /// What the machine is.
        platform: Platform,
    },
}

/// The resources that a node offers with this configuration.
///
/// GPUs for displays are never offered. A GPU in MIG mode is offered whole by strategy `none`, as by the vendor's plugin. The GPU of a
/// Tegra machine, and all of those that Windows lends to Linux, are one device, of which NVML may know nothing.
///
/// # Errors
/// Where the node is not as strategy `single` wants it, and where devices would be more than the kubelet can be told; where GPUs that are
/// one device are chosen, or shared by MPS. What the configuration names and the node does not have is a remark: it may come.
pub fn offer(
    platform: Platform,
    inventory: &Inventory,
    config: &Config,
    choice: &GpuChoice,
) -> Result<Offer, OfferError> {
    let mut remarks = Vec::new();
    let named = if platform == Platform::Nvml {
        let gpus = computing(&inventory.gpus, &mut remarks);
        remarks.extend(idle_rules(&gpus, config));
        let gpus = choice.of(&gpus, &mut remarks);
        mig::named(&gpus, config, &mut remarks)?
    } else {
        all::named(platform, inventory, config, choice)?
    };
    let resources = share::shared(named, &config.sharing, &mut remarks);
    match resources.iter().find(|set| set.len() > MOST_DEVICES) {
        None => Ok(Offer { resources, remarks }),
        Some(set) => Err(OfferError::TooMany {
            resource: set.name.clone(),
            devices: set.len(),
        }),
    }
}

/// The devices of each resource before they are shared.
type Named = BTreeMap<ResourceName, Vec<OfferedDevice>>;

/// Without those for displays, by PCI address.
fn computing<'a>(gpus: &'a [Gpu], remarks: &mut Vec<Remark>) -> Vec<&'a Gpu> {
    let (display, mut computing): (Vec<_>, Vec<_>) = gpus.iter().partition(|gpu| gpu.is_display_only());
    remarks.extend(display.into_iter().map(|gpu| Remark::DisplayOnly {
        index: gpu.index,
        gpu: gpu.uuid.clone(),
        name: gpu.name.clone(),
    }));
    computing.sort_by_key(|gpu| gpu.pci.address);
    computing
}

/// The rules that name nothing; none where there is nothing to name.
fn idle_rules(gpus: &[&Gpu], config: &Config) -> Vec<Remark> {
    let models: Vec<_> = gpus.iter().map(|gpu| gpu.name.clone()).collect();
    let devices = gpus.iter().flat_map(|gpu| &gpu.mig).flat_map(|mig| &mig.devices);
    let profiles: Vec<_> = devices
        .filter_map(|device| Some(device.profile.as_ref()?.to_string()))
        .collect();
    let idle = |section, rules: &[ResourceRule], names: &[String]| {
        let idle = rules.iter().filter(|rule| !names.iter().any(|name| rule.matches(name)));
        let remark = |rule: &ResourceRule| Remark::NothingToName {
            section,
            pattern: rule.pattern.clone(),
        };
        let remarks: Vec<_> = idle.map(remark).collect();
        if names.is_empty() { Vec::new() } else { remarks }
    };
    let mut remarks = idle("gpus", &config.resources.gpus, &models);
    if config.mig_strategy != MigStrategy::None {
        remarks.extend(idle("mig", &config.resources.mig, &profiles));
    }
    remarks
}

#[cfg(test)]
mod tests;
