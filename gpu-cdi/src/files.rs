//! What a driver root holds, read in one place.

mod binaries;
mod capabilities;
mod configs;
mod device_nodes;
mod discover;
mod driver_libraries;
mod drm;
mod firmware;
mod found;
mod graphics;
mod ld_cache;
mod libraries;
mod platform;
mod sockets;
mod storage;
mod tegra;
mod wsl;

use std::collections::BTreeMap;

use gpu_core::{Gpu, MigDevice, PciAddress};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

#[cfg(feature = "__fuzz")]
pub(crate) use self::ld_cache::libraries as cached_libraries;
use crate::SkipReason;

pub use self::{
    device_nodes::{DeviceFile, DeviceNumber, DeviceRule},
    discover::DiscoverConfig,
    driver_libraries::Library,
    found::{ConfigFile, FileProblem, FoundFile},
    platform::{Platform, PlatformSigns},
    tegra::{TegraConfig, TegraFiles},
    wsl::WslFiles,
};

/// What a driver root holds: everything besides the [`Inventory`](gpu_core::Inventory) that a spec is made of.
///
/// It holds no handles; [`discover`](Self::discover) reads one, and it can be stored and read back. All paths are
/// absolute beneath the driver root, those of device nodes beneath the device root. Lists are in the order of the
/// search, which is the same for the same root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverFiles {
    /// Version of this layout: [`DriverFiles::SCHEMA_VERSION`].
    #[serde(deserialize_with = "known_schema_version")]
    pub schema_version: u32,
    /// Where the driver root was, as the reader saw it.
    pub driver_root: String,
    /// Where the device root was, as the reader saw it: `<device root>/dev` holds the nodes.
    pub dev_root: String,
    /// The version of the driver libraries; `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_version: Option<String>,
    /// The folders that hold driver libraries.
    pub library_dirs: Vec<String>,
    /// The driver libraries: those that end in the driver's version, and the older `libnvidia-nvvm70`.
    pub libraries: Vec<Library>,
    /// The driver libraries for 32-bit programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries_32: Vec<Library>,
    /// Libraries for graphics with versions of their own, and those that need an extra link.
    pub graphics_libraries: Vec<Library>,
    /// Modules of the X server.
    pub xorg_modules: Vec<FoundFile>,
    /// Programs.
    pub binaries: Vec<FoundFile>,
    /// Configuration files, which have fixed places in a container.
    pub configs: Vec<ConfigFile>,
    /// Firmware of the GPU system processor.
    pub firmware: Vec<FoundFile>,
    /// Sockets of the driver's daemons.
    pub sockets: Vec<FoundFile>,
    /// What `GPUDirect` Storage reads besides its nodes: the folder of udev's database, and its configuration file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub storage: Vec<FoundFile>,
    /// NVIDIA's device nodes, and those of DRM, InfiniBand, VFIO and the Windows subsystem.
    pub device_nodes: Vec<DeviceFile>,
    /// What is at the path of such a node and is none, in words: `a regular file`, `a symbolic link`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_devices: BTreeMap<String, String>,
    /// The minor numbers of the nodes in `/dev/nvidia-caps`, by what opening them allows: `gpu0/gi1/access`,
    /// `gpu0/gi1/ci0/access`, where the first number is the GPU's minor number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capabilities: BTreeMap<String, u32>,
    /// The names of a GPU's DRM nodes (`card1`, `renderD128`), from `/sys/bus/pci/devices`.
    pub drm: BTreeMap<PciAddress, Vec<String>>,
    /// Links beside driver libraries and in `/dev/dri/by-path`, with what is written in them.
    pub links: BTreeMap<String, String>,
    /// What could not be read while the rest could.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<FileProblem>,
}

impl DriverFiles {
    /// The layout that this version of the crate writes.
    pub const SCHEMA_VERSION: u32 = 1;

    /// The device node at a path beneath the device root.
    pub fn device_node(&self, path: &str) -> Option<&DeviceFile> {
        self.device_nodes.iter().find(|node| node.path == path)
    }

    /// What every CUDA program needs and this root does not have, in words; a spec is made without it.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if !self
            .libraries
            .iter()
            .any(|library| library.name().starts_with("libcuda.so."))
        {
            missing.push(format!(
                "no `libcuda` in the driver root `{}`: CUDA programs will not run in containers",
                self.driver_root
            ));
        }
        for path in ["/dev/nvidiactl", "/dev/nvidia-uvm"] {
            if self.device_node(path).is_none() {
                let what = match self.not_devices.get(path) {
                    Some(what) => format!("`{path}` is {what} and no device"),
                    None => format!("no `{path}`"),
                };
                missing.push(format!(
                    "{what} in the device root `{}`: CUDA programs will not run in containers",
                    self.dev_root
                ));
            }
        }
        missing
    }

    /// The node of a GPU.
    ///
    /// # Errors
    /// [`SkipReason::DeviceNodeMissing`], and [`SkipReason::NotADevice`] if something else is there.
    pub fn gpu_node(&self, gpu: &Gpu) -> Result<&DeviceFile, SkipReason> {
        self.node_or_reason(format!("/dev/nvidia{}", gpu.minor))
    }

    /// The nodes that a program needs to use a MIG device: its GPU's, its GPU instance's and its compute instance's.
    ///
    /// With one of the latter missing, a container would see the GPU and no MIG device on it.
    ///
    /// # Errors
    /// As for [`gpu_node`](Self::gpu_node), and [`SkipReason::CapabilityUnknown`] if the driver knows no such instance.
    pub fn mig_nodes(&self, gpu: &Gpu, device: &MigDevice) -> Result<[&DeviceFile; 3], SkipReason> {
        let instance = format!("gpu{}/gi{}", gpu.minor, device.gpu_instance);
        Ok([
            self.gpu_node(gpu)?,
            self.capability_node(format!("{instance}/access"))?,
            self.capability_node(format!("{instance}/ci{}/access", device.compute_instance))?,
        ])
    }

    fn capability_node(&self, name: String) -> Result<&DeviceFile, SkipReason> {
        match self.capabilities.get(&name) {
            Some(minor) => self.node_or_reason(format!("/dev/nvidia-caps/nvidia-cap{minor}")),
            None => Err(SkipReason::CapabilityUnknown { name }),
        }
    }

    fn node_or_reason(&self, path: String) -> Result<&DeviceFile, SkipReason> {
        self.device_node(&path)
            .ok_or_else(|| match self.not_devices.get(&path) {
                Some(what) => SkipReason::NotADevice {
                    what: what.clone(),
                    path,
                },
                None => SkipReason::DeviceNodeMissing { path },
            })
    }
}

/// Refuses another layout by name: it could have the same fields with another meaning.
fn known_schema_version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        known @ DriverFiles::SCHEMA_VERSION => Ok(known),
        other => Err(D::Error::custom(format!(
            "schema_version {other} is not known: expected {}",
            DriverFiles::SCHEMA_VERSION
        ))),
    }
}
