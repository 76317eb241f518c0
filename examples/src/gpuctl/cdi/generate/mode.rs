use std::fmt;

use clap::ValueEnum;
use gpu_cdi::Companion;

/// What is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    /// wsl in Windows' subsystem for Linux, csv where the GPU is in a Tegra's chip, else nvml
    Auto,
    /// The GPUs and MIG devices that NVML tells of
    Nvml,
    /// One device with every NVIDIA node, to manage GPUs
    Management,
    #[value(help = "The nodes of GPUDirect Storage (/dev/nvidia-fs*)")]
    Gds,
    #[value(help = "The node of GDRCopy (/dev/gdrdrv)")]
    Gdrcopy,
    /// The nodes of InfiniBand adapters (/dev/infiniband)
    Mofed,
    /// The nodes of each NVSwitch (/dev/nvidia-nvswitch*)
    Nvswitch,
    /// IMEX channels (/dev/nvidia-caps-imex-channels)
    Imex,
    /// The GPU of a Tegra machine, by the files that its packages bring
    Csv,
    /// The GPUs of Windows, in its subsystem for Linux
    Wsl,
    /// GPUs that are bound to VFIO (an addition of this program)
    Vfio,
}

impl Mode {
    /// The devices that go with GPUs, if the mode is one of them.
    pub(super) fn companion(self) -> Option<Companion> {
        match self {
            Self::Gds => Some(Companion::Gds),
            Self::Gdrcopy => Some(Companion::GdrCopy),
            Self::Mofed => Some(Companion::Mofed),
            Self::Nvswitch => Some(Companion::NvSwitch),
            _ => None,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no mode is skipped");
        f.write_str(value.get_name())
    }
}
