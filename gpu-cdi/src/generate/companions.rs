use std::fmt;

use super::{GenerateOptions, Roots, common, finish, gpus::add_node, options};
use crate::{ContainerEdits, Device, DriverFiles, Error, Result, Spec};

/// Devices that stand beside GPUs and are given to a container all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Companion {
    /// `GPUDirect` Storage: `/dev/nvidia-fs*`, udev's database and `/etc/cufile.json`.
    Gds,
    /// `GDRCopy`: `/dev/gdrdrv`.
    GdrCopy,
    /// Mellanox network cards: `/dev/infiniband/uverbs*` and `rdma_cm`.
    Mofed,
    /// NVSwitch: `/dev/nvidia-nvswitch*`, `/dev/nvidia-nvswitchctl` among them.
    NvSwitch,
}

impl Companion {
    /// Every companion.
    pub const ALL: [Self; 4] = [Self::Gds, Self::GdrCopy, Self::Mofed, Self::NvSwitch];

    /// The vendor's name of it, as for `nvidia-ctk cdi generate --mode`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gds => "gds",
            Self::GdrCopy => "gdrcopy",
            Self::Mofed => "mofed",
            Self::NvSwitch => "nvswitch",
        }
    }

    /// The nodes, as patterns.
    fn nodes(self) -> &'static [&'static str] {
        match self {
            Self::Gds => &["/dev/nvidia-fs*"],
            Self::GdrCopy => &["/dev/gdrdrv"],
            Self::Mofed => &["/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm"],
            Self::NvSwitch => &["/dev/nvidia-nvswitch*"],
        }
    }
}

impl fmt::Display for Companion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Describes one device `all` with the nodes of a companion, and needs neither NVML nor driver libraries.
///
/// # Errors
/// - [`Error::NothingFound`]: the node has none.
/// - [`Error::Invalid`] as for [`generate`](crate::generate).
pub fn generate_companion(companion: Companion, files: &DriverFiles, options: &GenerateOptions) -> Result<Spec> {
    let roots = Roots::new(&files.driver_root, &files.dev_root, options)?;
    let mut edits = ContainerEdits::default();
    for node in &files.device_nodes {
        if companion
            .nodes()
            .iter()
            .any(|pattern| crate::pattern::matches(pattern, &node.path))
        {
            add_node(&mut edits, node, options, &roots);
        }
    }
    if edits.is_empty() {
        return Err(Error::NothingFound {
            what: companion.nodes().join(" or "),
            root: files.dev_root.clone(),
        });
    }
    if companion == Companion::Gds {
        let mounts = files.storage.iter();
        edits
            .mounts
            .extend(mounts.map(|file| common::read_only(&roots, file.content(), &file.path)));
    }
    finish(
        options,
        vec![Device::new(options::all_name(), edits)],
        common::void_edits(),
    )
}
