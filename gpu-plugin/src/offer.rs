//! What a node offers: an inventory and a configuration in, resources with their devices out; no I/O.

mod all;
mod choice;
mod device;
mod mig;
mod share;

use std::{collections::BTreeMap, fmt};

use gpu_cdi::Platform;
use gpu_core::{Gpu, GpuUuid, Inventory};
use gpu_sharing::config::{Config, ParseResourceNameError, ResourceName, SelectError};

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
    /// `devices` of a shared resource names what the resource does not have.
    #[error("cannot share `{resource}`")]
    Select {
        /// The resource.
        resource: ResourceName,
        /// What is not there.
        #[source]
        source: SelectError,
    },
}

/// The resources that a node offers with this configuration.
///
/// GPUs for displays are never offered. A GPU in MIG mode is offered whole by strategy `none`, as by the vendor's plugin. The GPU of a
/// Tegra machine, and all of those that Windows lends to Linux, are one device, of which NVML may know nothing.
///
/// # Errors
/// Where the node is not as strategy `single` wants it, where the devices to share are not there, and where they would be more than
/// the kubelet can be told; where GPUs that are one device are chosen, or shared by MPS.
pub fn offer(
    platform: Platform,
    inventory: &Inventory,
    config: &Config,
    choice: &GpuChoice,
) -> Result<Offer, OfferError> {
    let mut remarks = Vec::new();
    let named = if platform == Platform::Nvml {
        let gpus = choice.of(&computing(&inventory.gpus, &mut remarks), &mut remarks);
        mig::named(&gpus, config, &mut remarks)?
    } else {
        all::named(platform, inventory, config, choice)?
    };
    let resources = share::shared(named, &config.sharing, &mut remarks)?;
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

#[cfg(test)]
mod tests;
