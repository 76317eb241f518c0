//! The engine that is set up: which one it is, and where the host has its files.

use std::path::{Path, PathBuf};

use gpu_runtime_config::Preset;

use super::{
    arguments::Arguments,
    host::{self, Folders},
};
use crate::engine::{Engine, Target};

impl Arguments {
    /// The engine's files as the host knows them.
    pub(super) fn target(&self) -> anyhow::Result<Target> {
        let engine = self.runtime();
        let folders = self.folders();
        let main = folders.on_host(self.main(), &host::main(engine))?;
        let drop_in = match &self.drop_in_config_host_path {
            Some(path) if !path.as_os_str().is_empty() => Some(path.clone()),
            _ => folders.on_host(self.drop_in(), &host::drop_in(engine))?,
        };
        let Some(preset) = self.distribution(main.as_deref())? else {
            return Target::new(engine, &self.host_root, main, drop_in);
        };
        // The operator gives containerd's own place where nobody says another, and a distribution never looks there.
        let drop_in = drop_in.filter(|path| engine.drop_in().is_none_or(|own| path != Path::new(own)));
        Target::of_preset(preset, &self.host_root, drop_in)
    }

    /// Makes the folders of the engine's files writable beneath the host's root, where they are mounted apart.
    pub(super) fn make_writable(&self, target: &Target) -> anyhow::Result<()> {
        let folders = self.folders();
        for (here, on_host) in [(self.main(), &target.main), (self.drop_in(), &target.drop_in)] {
            if let Some(here) = here {
                folders.cover(&here, on_host)?;
            }
        }
        Ok(())
    }

    pub(super) fn socket_on_host(&self, target: &Target) -> anyhow::Result<PathBuf> {
        let usual = target.preset.map_or(target.engine.socket(), Preset::socket);
        Ok(self.given_socket()?.unwrap_or_else(|| usual.into()))
    }

    fn distribution(&self, main: Option<&Path>) -> anyhow::Result<Option<Preset>> {
        if self.runtime() != Engine::Containerd {
            return Ok(None);
        }
        self.preset
            .on_host(&self.host_root, main, self.given_socket()?.as_deref())
    }

    fn given_socket(&self) -> anyhow::Result<Option<PathBuf>> {
        self.folders().on_host(self.socket(), &host::socket(self.runtime()))
    }

    fn folders(&self) -> Folders<'_> {
        Folders::new(&self.host_root, !self.no_runtime_config)
    }
}
