//! The arguments of programs that read the GPUs of their node.

use std::path::PathBuf;

use clap::Args;
use gpu_core::nvml::LibrarySearch;

use crate::names;

/// Where the driver and the node are.
#[derive(Debug, Clone, Args)]
pub(crate) struct Hardware {
    /// The NVML library; default: beneath the driver root, then the loader's search path
    #[arg(long, value_name = "PATH", env = names::NVML_LIBRARY)]
    pub(crate) nvml_library: Option<PathBuf>,

    /// The root of the driver's files, as seen from here
    #[arg(long, value_name = "PATH", env = names::DRIVER_ROOT, default_value = "/")]
    pub(crate) driver_root: PathBuf,

    /// Where the host's /proc, /sys, /dev, /run and /etc are
    #[arg(long, value_name = "PATH", env = names::HOST_ROOT, default_value = "/")]
    pub(crate) host_root: PathBuf,
}

impl Hardware {
    /// Whether nothing was said: the driver and the node are where they usually are.
    #[cfg(feature = "quickstart")]
    pub(crate) fn is_usual(&self) -> bool {
        let usual = std::path::Path::new("/");
        self.nvml_library.is_none() && self.driver_root == usual && self.host_root == usual
    }

    pub(crate) fn library_search(&self) -> LibrarySearch {
        LibrarySearch {
            library: self.nvml_library.clone(),
            driver_root: Some(self.driver_root.clone()),
        }
    }
}
