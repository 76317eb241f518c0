//! The CDI files of a node, written again when the node changes and only then.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use gpu_cdi::{DriverFiles, GenerateOptions, Spec, generate, generate_management};
use gpu_core::nvml::{Library, LibrarySearch};

use super::{arguments::Arguments, install};

/// The file with the node's GPUs. The vendor's refresh service writes the same one: two files that describe the same
/// devices would make both useless.
const GPUS: &str = "nvidia.yaml";

/// Folders whose entries tell that devices came or went.
const DEVICES: [&str; 3] = ["dev", "dev/nvidia-caps", "dev/nvidia-caps-imex-channels"];

/// How long a node is left alone that could not be described in full, and is as it was.
const TRY_AGAIN: Duration = Duration::from_mins(1);

/// Writes the files.
#[derive(Debug)]
pub(super) struct Specs<'a> {
    arguments: &'a Arguments,
    last: Option<Attempt>,
    /// Why a file could not be written at the last attempt.
    said: Vec<String>,
}

/// One description of the node.
#[derive(Debug)]
struct Attempt {
    node: Fingerprint,
    /// Whether all files could be written.
    in_full: bool,
    when: Instant,
}

/// What a description depends on, as far as it is read at little cost.
#[derive(Debug, PartialEq, Eq)]
struct Fingerprint {
    /// The driver's version and build.
    driver: Option<String>,
    /// NVIDIA's device nodes with their numbers and modes.
    nodes: BTreeMap<PathBuf, (u64, u32)>,
    /// The GPUs' MIG devices.
    capabilities: Option<String>,
}

impl<'a> Specs<'a> {
    pub(super) fn new(arguments: &'a Arguments) -> Self {
        Self {
            arguments,
            last: None,
            said: Vec::new(),
        }
    }

    /// Describes the node, if it is not as it was described last.
    ///
    /// A node without a driver, or with one that does not work, has nothing to describe yet: that is logged, each reason
    /// once, and tried again when the node changes or a minute has passed.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn update(&mut self) -> anyhow::Result<()> {
        if !self.arguments.cdi_enabled {
            return Ok(());
        }
        let now = self.fingerprint();
        if let Some(last) = &self.last
            && last.node == now
            && (last.in_full || last.when.elapsed() < TRY_AGAIN)
        {
            return Ok(());
        }
        let folder = &self.arguments.cdi_output_dir;
        let files = [
            (self.arguments.cdi_kind.file_stem() + ".yaml", self.management()),
            (GPUS.to_owned(), self.gpus()),
        ];
        let mut missing = Vec::new();
        for (name, spec) in files {
            match spec {
                Ok(spec) => put(&spec, &folder.join(name))?,
                Err(error) => missing.push(format!("`{name}` is not written: {error:#}")),
            }
        }
        self.last = Some(Attempt {
            node: now,
            in_full: missing.is_empty(),
            when: Instant::now(),
        });
        for reason in missing.iter().filter(|reason| !self.said.contains(reason)) {
            tracing::warn!("{reason}");
        }
        self.said = missing;
        Ok(())
    }

    fn management(&self) -> anyhow::Result<Spec> {
        let mut options = self.options();
        options.kind = self.arguments.cdi_kind.clone();
        Ok(generate_management(&self.files(None)?, &options)?)
    }

    /// The GPUs that NVML tells of. The driver is let go afterwards: it may be replaced while this program runs.
    fn gpus(&self) -> anyhow::Result<Spec> {
        let library = Library::open(&LibrarySearch {
            library: self.arguments.nvml_library.clone(),
            driver_root: Some(self.arguments.driver_root_here()),
        })?;
        let inventory = library.inventory(&self.arguments.host_root)?;
        for problem in &inventory.problems {
            tracing::warn!("{problem}");
        }
        let files = self.files(inventory.driver.as_ref().map(|driver| driver.version.to_string()))?;
        let generated = generate(&inventory, &files, &self.options())?;
        for device in &generated.skipped {
            tracing::warn!("not described: {device}");
        }
        Ok(generated.spec)
    }

    fn files(&self, version: Option<String>) -> anyhow::Result<DriverFiles> {
        let mut config = crate::driver_files::with_search_paths(self.arguments.driver_root_here());
        config.dev_root = Some(self.arguments.dev_root_here());
        config.sys_root.clone_from(&self.arguments.host_root);
        config.driver_version = version;
        let files = DriverFiles::discover(&config)?;
        for problem in &files.problems {
            tracing::warn!("{problem}");
        }
        Ok(files)
    }

    fn options(&self) -> GenerateOptions {
        let mut options = GenerateOptions::default();
        options.host_driver_root = Some(self.arguments.driver_root.clone());
        options.host_dev_root = Some(self.arguments.dev_root_on_host().to_owned());
        options.hook_path = self
            .arguments
            .folder()
            .join(install::HOOK)
            .to_string_lossy()
            .into_owned();
        options
    }

    fn fingerprint(&self) -> Fingerprint {
        let root = &self.arguments.host_root;
        let read = |path: &str| fs::read_to_string(root.join(path)).ok();
        let dev_root = self.arguments.dev_root_here();
        Fingerprint {
            driver: read("proc/driver/nvidia/version").or_else(|| self.library()),
            nodes: DEVICES
                .iter()
                .flat_map(|folder| nodes(&dev_root.join(folder)))
                .collect(),
            capabilities: read("proc/driver/nvidia-caps/mig-minors"),
        }
    }

    /// The driver's library, where the kernel tells no version.
    fn library(&self) -> Option<String> {
        let root = self.arguments.driver_root_here();
        let folders = ["usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu"];
        let links = folders.iter().map(|folder| root.join(folder).join("libnvidia-ml.so.1"));
        links
            .into_iter()
            .find_map(|link| Some(fs::read_link(link).ok()?.to_string_lossy().into_owned()))
    }
}

fn nodes(folder: &Path) -> BTreeMap<PathBuf, (u64, u32)> {
    let entries = folder.read_dir().into_iter().flatten().filter_map(Result::ok);
    entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("nvidia") || name.starts_with("channel")
        })
        .filter_map(|entry| {
            let status = entry.metadata().ok()?;
            Some((entry.path(), (status.rdev(), status.mode())))
        })
        .collect()
}

/// Writes a spec if the file is another one.
fn put(spec: &Spec, path: &Path) -> anyhow::Result<()> {
    if Spec::read(path).is_ok_and(|found| found == *spec) {
        return Ok(());
    }
    spec.write(path).context("cannot describe the node")?;
    tracing::info!("wrote `{}`", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_comes_or_changes_is_seen() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path();
        assert!(nodes(folder).is_empty());
        fs::write(folder.join("nvidia0"), "").unwrap();
        fs::write(folder.join("null"), "").unwrap();
        let before = nodes(folder);
        assert_eq!(before.len(), 1);
        fs::write(folder.join("nvidia1"), "").unwrap();
        assert_ne!(nodes(folder), before);
        assert!(nodes(&folder.join("nvidia0")).is_empty(), "no folder");
    }
}
