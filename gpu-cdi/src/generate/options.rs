use std::{collections::BTreeSet, convert::Infallible, fmt, str::FromStr};

use gpu_core::{Gpu, MigDevice};

use super::HookName;
use std::path::PathBuf;

use crate::{DeviceName, Error, Kind, Result, names};

/// What a spec shall look like.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GenerateOptions {
    /// Default: `nvidia.com/gpu`.
    pub kind: Kind,
    /// The names under which each GPU or MIG device is offered. Default: index and UUID.
    pub names: Vec<NameStrategy>,
    /// The GPUs and MIG devices to describe; all if empty. Default: all.
    ///
    /// A GPU in MIG mode stands for its MIG devices.
    pub devices: Vec<DeviceId>,
    /// Whether a device `all` is added. Default: yes.
    ///
    /// In Kubernetes it is better off: whoever may name a CDI device could ask for every GPU of the node.
    pub all_device: bool,
    /// Where the host has the driver root. Default: where the files were read.
    pub host_driver_root: Option<String>,
    /// Where the host has the device root. Default: where the nodes were read, or, if the driver root is given and the
    /// two were read at one place, the host's driver root.
    pub host_dev_root: Option<String>,
    /// The hook program on the host. Default: `/usr/bin/nvidia-cdi-hook`.
    ///
    /// A program of the name `nvidia-ctk` is called with the sub-command `hook`.
    pub hook_path: String,
    /// The host's `ldconfig`, if the hook shall use another than its default: an absolute path. Default: none.
    pub ldconfig_path: Option<String>,
    /// Whether the hooks of every container are one, which starts one process in the place of six with the same effect. The hook
    /// program must be this crate's: the vendor's does not know it. Default: no.
    pub combined_hook: bool,
    /// Hooks to leave out. Default: none.
    pub disabled_hooks: BTreeSet<HookName>,
    /// Whether a container's process joins the group of a device node that only its group may use. Default: yes.
    pub additional_gids: bool,
    /// Whether the sockets of the driver's daemons are mounted. Default: yes.
    pub ipc_sockets: bool,
    /// Whether the driver's libraries for 32-bit programs are mounted too. Default: no.
    pub libraries_32: bool,
    /// Whether each device carries an annotation that says whether its memory is coherent with the processor's
    /// ([`names::COHERENT`]). Default: no.
    pub coherent_annotations: bool,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            kind: Kind::new(names::VENDOR, names::CLASS).expect("a valid kind"),
            names: vec![NameStrategy::Index, NameStrategy::Uuid],
            devices: Vec::new(),
            all_device: true,
            host_driver_root: None,
            host_dev_root: None,
            hook_path: names::HOOK_PATH.to_owned(),
            ldconfig_path: None,
            combined_hook: false,
            disabled_hooks: BTreeSet::new(),
            additional_gids: true,
            ipc_sockets: true,
            libraries_32: false,
            coherent_annotations: false,
        }
    }
}

/// How a GPU or a MIG device is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameStrategy {
    /// `0`, and `0:1` for the MIG device in slot 1 of GPU 0
    Index,
    /// `gpu0`, and `mig0:1`
    TypeIndex,
    /// `GPU-…`, and `MIG-…`
    Uuid,
}

impl NameStrategy {
    pub(super) fn gpu(self, gpu: &Gpu) -> DeviceName {
        let name = match self {
            Self::Index => gpu.index.to_string(),
            Self::TypeIndex => format!("gpu{}", gpu.index),
            Self::Uuid => gpu.uuid.to_string(),
        };
        name.parse().expect("an index and a UUID are device names")
    }

    /// The name of a machine's only GPU of which NVML tells nothing.
    pub(super) fn first(self) -> Option<DeviceName> {
        let name = match self {
            Self::Index => "0",
            Self::TypeIndex => "gpu0",
            Self::Uuid => return None,
        };
        name.parse().ok()
    }

    /// UUIDs of drivers before 470 (`MIG-GPU-…/1/0`) are no names of CDI: such devices have none.
    pub(super) fn mig(self, gpu: &Gpu, device: &MigDevice) -> Option<DeviceName> {
        let name = match self {
            Self::Index => format!("{}:{}", gpu.index, device.index),
            Self::TypeIndex => format!("mig{}:{}", gpu.index, device.index),
            Self::Uuid => device.uuid.to_string(),
        };
        name.parse().ok()
    }
}

impl fmt::Display for NameStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Index => "index",
            Self::TypeIndex => "type-index",
            Self::Uuid => "uuid",
        })
    }
}

impl FromStr for NameStrategy {
    type Err = ParseNameStrategyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "index" => Ok(Self::Index),
            "type-index" => Ok(Self::TypeIndex),
            "uuid" => Ok(Self::Uuid),
            _ => Err(ParseNameStrategyError { text: text.to_owned() }),
        }
    }
}

/// A text that names no way to name devices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a device name strategy: expected index, type-index or uuid")]
pub struct ParseNameStrategyError {
    text: String,
}

/// A GPU or MIG device as a person names it: an index (`0`, `0:1` for the MIG device in slot 1 of GPU 0) or a UUID.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DeviceId(String);

impl DeviceId {
    pub(super) fn names_gpu(&self, gpu: &Gpu) -> bool {
        self.0 == gpu.uuid.as_str() || self.0 == gpu.index.to_string()
    }

    pub(super) fn names_mig(&self, gpu: &Gpu, device: &MigDevice) -> bool {
        self.0 == device.uuid.as_str() || self.0 == format!("{}:{}", gpu.index, device.index)
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for DeviceId {
    /// Whether there is such a device is seen when a spec is generated.
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

pub(super) fn all_name() -> DeviceName {
    names::ALL.parse().expect("a valid device name")
}

pub(super) fn none_name() -> DeviceName {
    names::NONE.parse().expect("a valid device name")
}

/// Where the host has what was found.
#[derive(Debug)]
pub(super) struct Roots {
    driver: String,
    dev: String,
    /// Whether device nodes lie elsewhere on the host, or lay elsewhere when they were found.
    host_path_needed: bool,
}

impl Roots {
    /// The roots in which files and device nodes were found, as the host has them.
    pub(super) fn new(driver_root: &str, dev_root: &str, options: &GenerateOptions) -> Result<Self> {
        let driver = options.host_driver_root.as_deref().unwrap_or(driver_root);
        let dev = options
            .host_dev_root
            .as_deref()
            .unwrap_or(if dev_root == driver_root { driver } else { dev_root });
        for (what, root) in [("driver root", driver), ("device root", dev)] {
            if !root.starts_with('/') {
                let path = PathBuf::from(root);
                return Err(Error::RelativeRoot { what, path });
            }
        }
        let trimmed = |root: &str| root.trim_end_matches('/').to_owned();
        let (driver, dev) = (trimmed(driver), trimmed(dev));
        Ok(Self {
            // As the vendor's plugin does, which searches beneath a mount of the driver root and writes the host's path
            // of a node even where it equals the container's (seen with v0.20.0). Both mean the same to a reader.
            host_path_needed: !dev.is_empty() || !trimmed(dev_root).is_empty(),
            driver,
            dev,
        })
    }

    /// The host's path of a file of the driver root.
    pub(super) fn driver_file(&self, path: &str) -> String {
        format!("{}{path}", self.driver)
    }

    /// The host's path of a device node, if a spec has to tell it.
    pub(super) fn device_node(&self, path: &str) -> Option<String> {
        self.host_path_needed.then(|| format!("{}{path}", self.dev))
    }
}
