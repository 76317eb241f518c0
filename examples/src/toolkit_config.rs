//! The NVIDIA container toolkit's `config.toml`, as programs find it.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use gpu_runtime_config::toolkit::Config;

use crate::config_file;

/// Where the file is, in one of these folders.
pub(crate) const PATH: &str = "nvidia-container-runtime/config.toml";
/// The folder beside an installed program that holds it.
pub(crate) const BESIDE: &str = ".config";
/// Names the file.
pub(crate) const VARIABLE: &str = "NVIDIA_CTK_CONFIG_FILE_PATH";

/// Reads the configuration at `path`, else at the usual place; the defaults where there is none.
pub(crate) fn read(path: Option<&Path>) -> anyhow::Result<Config> {
    let path = path
        .filter(|path| !path.as_os_str().is_empty())
        .map_or_else(usual_path, Path::to_owned);
    let text = match config_file::read_file(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Config::default()),
        Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", path.display())),
    };
    Ok(Config::parse(&path, &text)?)
}

/// What the environment names, else beside an installed program, else on the host.
fn usual_path() -> PathBuf {
    let filled = |name| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = filled(VARIABLE) {
        return path.into();
    }
    let beside = || Some(env::current_exe().ok()?.parent()?.join(BESIDE).join(PATH));
    if let Some(path) = beside().filter(|path| path.exists()) {
        return path;
    }
    let folder = filled("XDG_CONFIG_HOME").unwrap_or_else(|| "/etc".into());
    Path::new(&folder).join(PATH)
}
