use std::path::{Path, PathBuf};

use super::{DeviceFile, DiscoverConfig, FileProblem, FoundFile, device_nodes, found::Search};
use crate::Result;

/// The node that leads to Windows' GPUs.
pub(super) const NODE: &str = "/dev/dxg";

/// The library that stands between Linux and Windows' drivers.
pub(super) const DXCORE: &str = "/usr/lib/wsl/lib/libdxcore.so";

/// The folders of Windows' drivers, of all makes.
const STORES: &str = "/usr/lib/wsl/drivers";

/// What CUDA needs of the driver's folder.
const REQUIRED: [&str; 8] = [
    "libcuda.so.1.1",
    "libcuda_loader.so",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ml_loader.so",
    "libnvdxgdmal.so.1",
    "nvcubins.bin",
    "nvidia-smi",
];

/// What else of it is of use.
const OTHERS: [&str; 3] = ["*.so*", "*.bin", "*.dll"];

/// What the Windows subsystem for Linux has of a Windows driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WslFiles {
    /// Where the root was, as the reader saw it.
    pub root: String,
    /// Where the device root was, as the reader saw it.
    pub dev_root: String,
    /// `/dev/dxg`.
    pub device_node: Option<DeviceFile>,
    /// The driver's files, and the library that leads to Windows.
    pub files: Vec<FoundFile>,
    /// Files that CUDA needs and that are not there.
    pub missing: Vec<String>,
    /// What could not be read while the rest could.
    pub problems: Vec<FileProblem>,
}

impl WslFiles {
    /// Reads what there is; of `config`, the driver root, the device root and the rule for device nodes count.
    ///
    /// The driver's folder is the one with `libcuda.so.1.1`; the vendor's program asks `libdxcore.so` for it.
    ///
    /// # Errors
    /// As for [`DriverFiles::discover`](crate::DriverFiles::discover).
    pub fn discover(config: &DiscoverConfig) -> Result<Self> {
        let dev_root = config.dev_root.as_ref().unwrap_or(&config.driver_root);
        let mut search = Search::new(DiscoverConfig::open("driver root", &config.driver_root)?);
        let mut dev = Search::new(DiscoverConfig::open("device root", dev_root)?);
        let device_node = device_nodes::node(&mut dev, config.device_rule, NODE);
        let mut files = Vec::new();
        let mut missing = Vec::new();
        match search.file(Path::new(DXCORE), |_| true) {
            Some(file) => files.push(file),
            None => missing.push(DXCORE.to_owned()),
        }
        let store = store(&mut search);
        for name in REQUIRED {
            let found = store
                .as_ref()
                .and_then(|store| search.file(&store.join(name), |_| true));
            match found {
                Some(file) => files.push(file),
                None => missing.push(name.to_owned()),
            }
        }
        if let Some(store) = store {
            for name in search.list(&store).iter() {
                if OTHERS.iter().any(|pattern| crate::pattern::matches(pattern, name))
                    && let Some(file) = search.file(&store.join(name), |_| true)
                    && !files.contains(&file)
                {
                    files.push(file);
                }
            }
        }
        let mut problems = search.finish()?;
        problems.extend(dev.finish()?);
        Ok(Self {
            root: DiscoverConfig::name("driver root", &config.driver_root)?,
            dev_root: DiscoverConfig::name("device root", dev_root)?,
            device_node,
            files,
            missing,
            problems,
        })
    }
}

fn store(search: &mut Search) -> Option<PathBuf> {
    let names = search.list(Path::new(STORES));
    let mut stores = names.iter().map(|name| Path::new(STORES).join(name));
    stores.find(|store| search.file(&store.join("libcuda.so.1.1"), |_| true).is_some())
}
