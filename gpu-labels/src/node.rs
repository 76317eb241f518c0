use gpu_core::{PciAddress, PciId, VgpuHost};

#[cfg(feature = "files")]
mod read;

/// What labels say of a node that is not in its inventory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// The machine's type as its firmware names it; `None` where it cannot be read.
    pub machine: Option<String>,
    /// NVIDIA's functions on the PCI bus, by address, also without a driver; `None` where the bus cannot be read.
    pub pci: Option<Vec<PciFunction>>,
    /// When the program began to label, in seconds since 1970; `None` for no such label.
    ///
    /// It stays the same from round to round, so that labels that do not change are not written.
    pub timestamp: Option<u64>,
}

impl Node {
    /// The same with what `earlier` knew where this reading has nothing. A file that cannot be read now makes no other machine.
    #[must_use]
    pub fn or(self, earlier: &Self) -> Self {
        Self {
            machine: self.machine.or_else(|| earlier.machine.clone()),
            pci: self.pci.or_else(|| earlier.pci.clone()),
            ..self
        }
    }
}

/// One of NVIDIA's functions on the PCI bus: a GPU, its sound, a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciFunction {
    /// Where it is.
    pub address: PciAddress,
    /// Vendor and device.
    pub id: PciId,
    /// Class, subclass and interface: `0x030200` for a GPU without a display.
    pub class: u32,
    /// Whether it is a virtual GPU.
    pub vgpu: Vgpu,
}

/// What a PCI function's configuration space says of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vgpu {
    /// It is not a virtual GPU.
    No,
    /// It is one.
    Yes(VgpuHost),
    /// It cannot be seen.
    Unknown {
        /// Why.
        reason: String,
    },
}

impl PciFunction {
    /// The class of a GPU without a display.
    pub const CLASS_3D: u32 = 0x03_02_00;
    /// The class of a GPU with one.
    pub const CLASS_VGA: u32 = 0x03_00_00;

    /// Whether it is a GPU.
    pub fn is_gpu(&self) -> bool {
        matches!(self.class, Self::CLASS_3D | Self::CLASS_VGA)
    }
}
