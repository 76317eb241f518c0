//! The NVIDIA container toolkit's `config.toml`, as programs find it.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use gpu_runtime_config::toolkit::Config;

/// Reads the configuration at `path`, else at the usual place; the defaults where there is none.
pub(crate) fn read(path: Option<&Path>) -> anyhow::Result<Config> {
    let path = path
        .filter(|path| !path.as_os_str().is_empty())
        .map_or_else(usual_path, Path::to_owned);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Config::default()),
        Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", path.display())),
    };
    Ok(Config::parse(&path, &text)?)
}

fn usual_path() -> PathBuf {
    let dir = env::var_os("XDG_CONFIG_HOME").filter(|dir| !dir.is_empty());
    Path::new(&dir.unwrap_or_else(|| "/etc".into())).join("nvidia-container-runtime/config.toml")
}
