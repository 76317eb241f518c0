//! The arguments of programs that read the GPUs of their node.

use std::path::PathBuf;

use clap::Args;
use gpu_core::nvml::LibrarySearch;

/// Where the driver and the node are.
#[derive(Debug, Clone, Args)]
pub(crate) struct Hardware {
    /// The NVML library; default: beneath the driver root, then the loader's search path
    #[arg(long, value_name = "PATH", env = "GPU_NVML_LIBRARY")]
    nvml_library: Option<PathBuf>,

    /// The root of the driver's files, as seen from here
    #[arg(long, value_name = "PATH", env = "NVIDIA_DRIVER_ROOT", default_value = "/")]
    driver_root: PathBuf,

    /// Where the host's /proc, /sys, /dev, /run and /etc are
    #[arg(long, value_name = "PATH", env = "GPU_HOST_ROOT", default_value = "/")]
    pub(crate) host_root: PathBuf,
}

impl Hardware {
    pub(crate) fn library_search(&self) -> LibrarySearch {
        LibrarySearch {
            library: self.nvml_library.clone(),
            driver_root: Some(self.driver_root.clone()),
        }
    }
}
