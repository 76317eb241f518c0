//! The files of a node's specs, which are written together.

use std::{
    fs,
    path::{Path, PathBuf},
};

use gpu_cdi::{Format, Spec};

use crate::Result;

/// Specs, and where their files are to be.
#[derive(Debug, Default)]
pub(in crate::node) struct CdiFiles(Vec<(PathBuf, Spec)>);

impl CdiFiles {
    pub(super) fn add(&mut self, spec: Spec, folder: &Path) {
        let name = format!("{}.json", spec.kind.file_stem());
        self.0.push((folder.join(name), spec));
    }

    /// Where they are.
    pub(in crate::node) fn paths(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.0.iter().map(|(path, _)| path.clone())
    }

    /// The device nodes that they name.
    pub(in crate::node) fn nodes(&self) -> impl Iterator<Item = &str> {
        let specs = self.0.iter().map(|(_, spec)| spec);
        let edits = specs.flat_map(|spec| {
            let devices = spec.devices.iter().map(|device| &device.container_edits);
            devices.chain([&spec.container_edits])
        });
        edits
            .flat_map(|edits| &edits.device_nodes)
            .map(|node| node.path.as_str())
    }

    /// Writes all of them, or leaves all as they were. One that is there already is not touched: runtimes read anew whatever changes.
    ///
    /// # Errors
    /// For the first that cannot be written.
    pub(in crate::node) fn write(&self) -> Result<()> {
        let mut before = Vec::new();
        for (path, spec) in &self.0 {
            let known = known(path);
            if known.as_ref() == Some(spec) {
                continue;
            }
            if let Err(error) = spec.write(path) {
                before.into_iter().for_each(put_back);
                return Err(error.into());
            }
            tracing::info!(path = %path.display(), "wrote the CDI file");
            before.push((path, known));
        }
        Ok(())
    }
}

/// What cannot be put back stays: it is no worse than what was to be written.
fn put_back((path, spec): (&PathBuf, Option<Spec>)) {
    let _ = match spec {
        Some(spec) => spec.write(path).map_err(drop),
        None => fs::remove_file(path).map_err(drop),
    };
}

/// The spec that is there; none where there is no file, or one that makes no sense.
pub(super) fn known(path: &Path) -> Option<Spec> {
    Spec::from_text(&fs::read_to_string(path).ok()?, Format::Json).ok()
}
