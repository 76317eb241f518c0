use std::path::PathBuf;

use super::{DiscoverConfig, FoundFile, found::Search};

const BINARIES: [&str; 8] = [
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
    "nvidia-xconfig",
];

const DIRS: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// The driver's programs, each from the first folder that has it as something executable.
pub(super) fn find(search: &mut Search, config: &DiscoverConfig) -> Vec<FoundFile> {
    let mut dirs = config.binary_search_paths.clone();
    dirs.extend(
        DIRS.into_iter()
            .map(PathBuf::from)
            .filter(|dir| !config.binary_search_paths.contains(dir)),
    );
    BINARIES
        .into_iter()
        .filter_map(|name| search.first(&dirs, name, |stat| stat.st_mode & 0o111 != 0))
        .collect()
}
