//! The file of configurations: given, made from the GPUs, or the one for drivers that tell nothing.

use std::{fs, os::unix::fs::OpenOptionsExt as _, path::Path};

use anyhow::{Context as _, bail};
use gpu_core::Inventory;
use gpu_sharing::mig::parted::{Configs, Form, NoProfiles, generate};

use super::MigManager;

/// A text and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) text: String,
    /// Whether it was made from the GPUs.
    pub(super) generated: bool,
}

impl Source {
    /// The configurations in it.
    pub(super) fn configs(&self) -> anyhow::Result<Configs> {
        Configs::parse(&self.text).with_context(|| format!("cannot use {}", self.name))
    }
}

/// The file that is given, if one is.
pub(super) fn given(manager: &MigManager) -> Option<anyhow::Result<Source>> {
    manager
        .config_file
        .as_deref()
        .filter(|path| !path.as_os_str().is_empty())
        .map(read)
}

/// The file that fits these GPUs.
pub(super) fn made(manager: &MigManager, inventory: &Inventory) -> anyhow::Result<Source> {
    match generate(inventory) {
        Ok(configs) => Ok(Source {
            name: "the configurations made from this node's GPUs".to_owned(),
            text: configs.to_yaml(Form::Generated),
            generated: true,
        }),
        Err(error @ NoProfiles::Unknown { .. }) => match &manager.default_config_file {
            Some(path) => read(path),
            None => bail!("{error}, and no DEFAULT_CONFIG_FILE is given"),
        },
        Err(error) => Err(error.into()),
    }
}

fn read(path: &Path) -> anyhow::Result<Source> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    Ok(Source {
        name: format!("`{}`", path.display()),
        text,
        generated: false,
    })
}

/// Keeps the generated file where people look for it; readable by its owner, as the vendor's.
pub(super) fn keep(path: &Path, text: &str) -> anyhow::Result<()> {
    let what = || format!("cannot write `{}`", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(what)?;
    }
    let new = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&new)
        .with_context(what)?;
    std::io::Write::write_all(&mut file, text.as_bytes())
        .and_then(|()| fs::rename(&new, path))
        .with_context(what)
}
