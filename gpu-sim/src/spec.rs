use std::path::PathBuf;

/// What to make a node from.
///
/// # Example
///
/// ```
/// let spec = gpu_sim::NodeSpec::new("h100").gpus(4).seed(7).permute_pci(true);
/// # let _ = spec;
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct NodeSpec {
    pub(crate) profile: String,
    pub(crate) gpus: Option<usize>,
    pub(crate) seed: u64,
    pub(crate) driver: Option<String>,
    pub(crate) permute_pci: bool,
    pub(crate) library: Option<PathBuf>,
    pub(crate) nvidia_smi: Option<PathBuf>,
}

impl NodeSpec {
    /// A node of that profile (or of the first profile with that board), as the profile describes it.
    pub fn new(profile: impl Into<String>) -> Self {
        Self {
            profile: profile.into(),
            gpus: None,
            seed: 0,
            driver: None,
            permute_pci: false,
            library: None,
            nvidia_smi: None,
        }
    }

    /// How many GPUs. Default: as many as the profile has room for.
    pub fn gpus(mut self, count: usize) -> Self {
        self.gpus = Some(count);
        self
    }

    /// Where UUIDs, serial numbers and the permuted PCI order come from. Default: 0. The same seed gives the same node.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Driver branch or full version. Default: the profile's.
    pub fn driver(mut self, version: impl Into<String>) -> Self {
        self.driver = Some(version.into());
        self
    }

    /// Whether minor numbers differ from the PCI order, as they may on hardware. Default: no.
    ///
    /// NVML's indices always follow the PCI order, so the device node of GPU 0 then need not be `/dev/nvidia0`.
    pub fn permute_pci(mut self, permute: bool) -> Self {
        self.permute_pci = permute;
        self
    }

    /// The simulated library to copy. Default: what [`library`](crate::library()) finds.
    pub fn library(mut self, path: impl Into<PathBuf>) -> Self {
        self.library = Some(path.into());
        self
    }

    /// The program to put at `usr/bin/nvidia-smi`. Default: `nvidia-smi` beside this program or one folder above, if it
    /// is there; else a script that says so and fails.
    pub fn nvidia_smi(mut self, path: impl Into<PathBuf>) -> Self {
        self.nvidia_smi = Some(path.into());
        self
    }
}
