//! Where programs that write CDI files look for the driver's.

#[cfg(any(feature = "device-plugin", feature = "quickstart"))]
use std::path::Path;
use std::{env, path::PathBuf};

use gpu_cdi::DiscoverConfig;

/// The driver in this root, with the search paths of this process.
pub(crate) fn with_search_paths(driver_root: impl Into<PathBuf>) -> DiscoverConfig {
    DiscoverConfig::new(driver_root)
        .with_search_paths(env::var_os("PATH").as_deref(), env::var_os("XDG_DATA_DIRS").as_deref())
}

/// The same on a machine whose `/sys` is in `host_root`.
///
/// As upstream: a driver root without device nodes, as of a driver container, leaves them in the usual place.
#[cfg(any(feature = "device-plugin", feature = "quickstart"))]
pub(crate) fn driver_files(driver_root: &Path, host_root: &Path) -> DiscoverConfig {
    let mut config = with_search_paths(driver_root);
    config.dev_root = (!driver_root.join("dev").is_dir()).then(|| PathBuf::from("/"));
    host_root.clone_into(&mut config.sys_root);
    config
}
