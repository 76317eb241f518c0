//! The folders that CDI files are in.

use std::path::{Path, PathBuf};

use clap::Args;
use gpu_cdi::Cache;

#[derive(Debug, Args)]
pub(super) struct SpecDirs {
    /// The folders that hold CDI files, the least important first [default: /etc/cdi and /var/run/cdi, if they are there]
    #[arg(
        long = "spec-dir",
        alias = "spec-dirs",
        env = "NVIDIA_CTK_CDI_SPEC_DIRS",
        value_delimiter = ',',
        value_name = "PATH"
    )]
    given: Vec<PathBuf>,
}

impl SpecDirs {
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        if self.given.is_empty() {
            return Cache::DIRS.map(PathBuf::from).to_vec();
        }
        self.given.clone()
    }

    /// Those that somebody names and that are not there.
    pub(super) fn missing(&self) -> impl Iterator<Item = &Path> {
        self.given.iter().map(PathBuf::as_path).filter(|path| !path.exists())
    }
}
