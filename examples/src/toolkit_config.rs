//! The NVIDIA container toolkit's `config.toml`, as programs find it.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use gpu_runtime_config::toolkit::Config;

use crate::{config_file, names};

pub(crate) mod keys;
#[cfg(any(feature = "container-runtime", feature = "toolkit"))]
mod log_level;
#[cfg(any(feature = "container-runtime", feature = "toolkit"))]
mod mode;

#[cfg(any(feature = "container-runtime", feature = "toolkit"))]
pub(crate) use self::{log_level::LogLevel, mode::Mode};

/// Where the file is, in one of these folders.
pub(crate) const PATH: &str = "nvidia-container-runtime/config.toml";
/// The folder beside an installed program that holds it.
pub(crate) const BESIDE: &str = ".config";

/// The file and what it says.
#[derive(Debug, Default)]
pub(crate) struct ToolkitConfig {
    /// Where it is, or would be.
    pub(crate) path: PathBuf,
    pub(crate) config: Config,
}

impl ToolkitConfig {
    /// Reads the configuration at `path`, else at the usual place; the defaults where there is none.
    pub(crate) fn read(path: Option<&Path>) -> anyhow::Result<Self> {
        let path = path
            .filter(|path| !path.as_os_str().is_empty())
            .map_or_else(usual_path, Path::to_owned);
        let config = match config_file::read_file(&path) {
            Ok(text) => Config::parse(&path, &text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Config::default(),
            Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", path.display())),
        };
        Ok(Self { path, config })
    }

    /// A key of the file, for messages about its value.
    pub(crate) fn key(&self, key: &str) -> String {
        format!("`{key}` of `{}`", self.path.display())
    }
}

/// What the environment names, else beside an installed program, else on the host.
fn usual_path() -> PathBuf {
    let filled = |name| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = filled(names::TOOLKIT_CONFIG_FILE) {
        return path.into();
    }
    let beside = || Some(env::current_exe().ok()?.parent()?.join(BESIDE).join(PATH));
    if let Some(path) = beside().filter(|path| path.exists()) {
        return path;
    }
    let folder = filled("XDG_CONFIG_HOME").unwrap_or_else(|| "/etc".into());
    Path::new(&folder).join(PATH)
}
