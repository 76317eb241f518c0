/// Which parts of a node a [`Library`](super::Library) reads; all of them by default. What is left out is absent from the
/// inventory, as if no GPU offered it.
///
/// NVML asks the GPU itself for some of it, once for each process at least. The times are those of an H200 with driver 580 in
/// a process of its own (`e2e/hardware/nvml-times`), beside 18 ms to initialise NVML and find one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// How the GPUs reach each other: [`Inventory::topology`](crate::Inventory::topology) and
    /// [`Gpu::nvlinks`](crate::Gpu::nvlinks). The time grows with the square of the number of GPUs.
    pub topology: bool,
    /// What makes no difference to who may use a GPU: power limits, PCIe link, ECC mode and errors, serial, part and module
    /// number, VBIOS, and the mark of a vGPU host. About 10 ms a GPU.
    pub board: bool,
    /// The MIG profiles of a GPU whose MIG mode is off; those of one whose mode is on are always read, since its instances
    /// are found by them. At least 7 ms a GPU.
    pub idle_mig_profiles: bool,
}

impl Parts {
    /// All.
    pub const ALL: Self = Self {
        topology: true,
        board: true,
        idle_mig_profiles: true,
    };

    /// The GPUs and MIG devices alone, with what containers, labels and their health need.
    pub const DEVICES: Self = Self {
        topology: false,
        board: false,
        idle_mig_profiles: false,
    };
}

impl Default for Parts {
    fn default() -> Self {
        Self::ALL
    }
}
