//! The CDI files of a node, written again when the node changes and only then.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use gpu_cdi::{
    Companion, DriverFiles, Error, GenerateOptions, Kind, Spec, generate, generate_companion, generate_imex,
    generate_management,
};
use gpu_core::nvml::{Library, LibrarySearch, Parts};

use super::{arguments::Arguments, child, install};
use crate::device_nodes;

/// The file with the node's GPUs. The vendor's refresh service writes the same one: two files that describe the same
/// devices would make both useless.
const GPUS: &str = "nvidia.yaml";

/// Folders whose entries tell that devices came or went, and with what those begin that count.
const DEVICES: [(&str, &[&str]); 5] = [
    ("dev", &["nvidia", "gdrdrv"]),
    ("dev/dri", &["card", "renderD"]),
    ("dev/infiniband", &["uverbs", "rdma_cm"]),
    ("dev/nvidia-caps", &["nvidia"]),
    ("dev/nvidia-caps-imex-channels", &["channel"]),
];

/// The class of the devices that are IMEX channels.
const IMEX_CHANNEL: &str = "imex-channel";

/// How long a node is left alone that could not be described in full, and is as it was.
const TRY_AGAIN: Duration = Duration::from_mins(1);

/// Has the files written.
#[derive(Debug)]
pub(super) struct Specs<'a> {
    arguments: &'a Arguments,
    last: Option<Attempt>,
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
    /// The device nodes that are described, with their numbers and modes.
    nodes: BTreeMap<PathBuf, (u64, u32)>,
    /// The GPUs' MIG devices: the folders of their capabilities.
    capabilities: Vec<PathBuf>,
    /// The files that there are: one that somebody removes is written again.
    files: Vec<String>,
}

impl<'a> Specs<'a> {
    pub(super) fn new(arguments: &'a Arguments) -> Self {
        Self { arguments, last: None }
    }

    /// Has the node described, if it is not as it was described last.
    ///
    /// A node without a driver, or with one that does not work, has nothing to describe yet: that is logged, and tried again
    /// when the node changes or a minute has passed.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) async fn update(&mut self) -> anyhow::Result<()> {
        let now = Fingerprint::of(self.arguments);
        if let Some(last) = &self.last
            && last.node == now
            && (last.in_full || last.when.elapsed() < TRY_AGAIN)
        {
            return Ok(());
        }
        let in_full = match child::run("--describe").await {
            Ok(status) if status.success() => true,
            Ok(status) if status.code() == Some(IN_PART) => false,
            Ok(status) if status.code().is_some() => bail!("the node could not be described: {status}"),
            // The driver broke it, or hung: no reason to leave the node as it is otherwise.
            Ok(status) => {
                tracing::warn!("the reader of the driver did not end by itself: {status}");
                false
            }
            Err(error) => {
                tracing::warn!("the node is not described: {error:#}");
                false
            }
        };
        // As it is now: the child made nodes that were missing.
        self.last = Some(Attempt {
            node: Fingerprint::of(self.arguments),
            in_full,
            when: Instant::now(),
        });
        Ok(())
    }
}

/// The exit code of a child that could not write all files, since the node has nothing to describe yet.
const IN_PART: i32 = 3;

/// Describes the node: what the child does.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn describe(arguments: &Arguments) -> anyhow::Result<()> {
    let node = Description { arguments };
    if arguments.creates_control_nodes() {
        // The driver's own programs make these when they are run, and a container without them sees no MIG device.
        super::create_nodes(arguments, &device_nodes::mig(&arguments.host_root));
    }
    let folder = &arguments.specs();
    let files = [
        (file_name(&arguments.cdi_kind), node.management()),
        (GPUS.to_owned(), node.gpus()),
    ];
    node.companions(folder)?;
    let mut in_full = true;
    for (name, described) in files {
        let path = folder.join(&name);
        match described {
            Ok(Described { spec, in_full: all }) => {
                put(&spec, &path)?;
                in_full &= all;
            }
            Err(error) => {
                tracing::warn!("`{name}` is not written: {error:#}");
                in_full = false;
                if has_nothing(&error) {
                    remove(&path)?;
                }
            }
        }
    }
    if !in_full {
        #[expect(clippy::exit, reason = "a third outcome, which only the parent sees")]
        std::process::exit(IN_PART);
    }
    Ok(())
}

/// The names of the files that a description may write.
fn names(arguments: &Arguments) -> impl Iterator<Item = String> {
    let vendor = GenerateOptions::default().kind;
    let companions = Companion::ALL.map(Companion::as_str);
    let kinds = companions
        .into_iter()
        .chain([IMEX_CHANNEL])
        .map(move |class| kind(&vendor, class));
    let kinds = std::iter::once(arguments.cdi_kind.clone()).chain(kinds);
    kinds.map(|kind| file_name(&kind)).chain([GPUS.to_owned()])
}

fn kind(like: &Kind, class: &str) -> Kind {
    Kind::new(like.vendor(), class).expect("a valid kind")
}

fn file_name(kind: &Kind) -> String {
    kind.file_stem() + ".yaml"
}

/// Whether the node was read and has nothing that containers could get: a file of earlier days would have them fail later.
fn has_nothing(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref();
    matches!(
        error,
        Some(Error::NothingToDescribe { .. } | Error::NothingFound { .. })
    )
}

struct Described {
    spec: Spec,
    /// Whether every GPU could be read: one that is lost may be back in a while.
    in_full: bool,
}

/// A node, to be described.
struct Description<'a> {
    arguments: &'a Arguments,
}

impl Description<'_> {
    fn management(&self) -> anyhow::Result<Described> {
        let mut options = self.options();
        options.kind = self.arguments.cdi_kind.clone();
        Ok(Described {
            spec: generate_management(&self.files(None)?, &options)?,
            in_full: true,
        })
    }

    /// The devices beside GPUs that this node has, each of a kind of its own, so that the runtime finds them by their variables.
    fn companions(&self, folder: &Path) -> anyhow::Result<()> {
        // Why there are none is said where the GPUs are described.
        let Ok(files) = self.files(None) else {
            return Ok(());
        };
        let options = |class: &str| {
            let mut options = self.options();
            options.kind = kind(&options.kind, class);
            options
        };
        let companions = Companion::ALL.map(|companion| {
            let options = options(companion.as_str());
            (options.kind.clone(), generate_companion(companion, &files, &options))
        });
        let imex = options(IMEX_CHANNEL);
        let channels = (imex.kind.clone(), generate_imex(&files, &[], &imex));
        for (kind, spec) in companions.into_iter().chain([channels]) {
            let path = folder.join(file_name(&kind));
            match spec {
                Ok(spec) => put(&spec, &path)?,
                // Gone, or never there: what is left of it would keep containers from starting.
                Err(error) if error.is_nothing_found() => remove(&path)?,
                Err(error) => tracing::warn!("`{}` is not written: {error}", path.display()),
            }
        }
        Ok(())
    }

    /// The GPUs that NVML tells of. The driver is let go afterwards: it may be replaced while this program runs.
    fn gpus(&self) -> anyhow::Result<Described> {
        let library = Library::open(&LibrarySearch {
            library: self.arguments.nvml_library.clone(),
            driver_root: Some(self.arguments.driver_root_here()),
        })?
        .with_parts(Parts::DEVICES);
        let inventory = library.inventory(&self.arguments.host_root)?;
        for problem in &inventory.problems {
            tracing::warn!("{problem}");
        }
        let files = self.files(inventory.driver.as_ref().map(|driver| driver.version.to_string()))?;
        let generated = generate(&inventory, &files, &self.options())?;
        for device in &generated.skipped {
            tracing::warn!("not described: {device}");
        }
        for missing in files.missing() {
            tracing::warn!("{missing}");
        }
        Ok(Described {
            spec: generated.spec,
            in_full: inventory.problems.is_empty(),
        })
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
        options.combined_hook = true;
        options.hook_path = self
            .arguments
            .folder()
            .join(install::HOOK)
            .to_string_lossy()
            .into_owned();
        options
    }
}

impl Fingerprint {
    fn of(arguments: &Arguments) -> Self {
        let root = &arguments.host_root;
        let dev_root = arguments.dev_root_here();
        let folder = arguments.specs();
        Self {
            driver: read(&root.join("proc/driver/nvidia/version")).or_else(|| library(&arguments.driver_root_here())),
            nodes: DEVICES
                .iter()
                .flat_map(|(folder, names)| nodes(&dev_root.join(folder), names))
                .collect(),
            capabilities: instances(&root.join("proc/driver/nvidia/capabilities")),
            files: names(arguments).filter(|name| folder.join(name).exists()).collect(),
        }
    }
}

/// The first lines of a file of the kernel's.
fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(4096).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The driver's library, where the kernel tells no version.
fn library(driver_root: &Path) -> Option<String> {
    let folders = ["usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu"];
    let links = folders
        .iter()
        .map(|folder| driver_root.join(folder).join("libnvidia-ml.so.1"));
    links
        .into_iter()
        .find_map(|link| Some(fs::read_link(link).ok()?.to_string_lossy().into_owned()))
}

/// The folders of GPUs, GPU instances and compute instances. The kernel numbers instances anew in other places, so that
/// another layout has other folders; one that is made anew as it was is told by its nodes' change of time, and means the same.
fn instances(capabilities: &Path) -> Vec<PathBuf> {
    let folders = |path: &Path| -> Vec<PathBuf> {
        let entries = path.read_dir().into_iter().flatten().filter_map(Result::ok);
        let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        entries.filter(is_folder).map(|entry| entry.path()).collect()
    };
    let mut found = Vec::new();
    for gpu in folders(capabilities) {
        for instance in folders(&gpu.join("mig")) {
            found.extend(folders(&instance));
            found.push(instance);
        }
    }
    found.sort_unstable();
    found
}

fn nodes(folder: &Path, names: &[&str]) -> BTreeMap<PathBuf, (u64, u32)> {
    let entries = folder.read_dir().into_iter().flatten().filter_map(Result::ok);
    entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            names.iter().any(|start| name.starts_with(start))
        })
        .filter_map(|entry| {
            let status = entry.metadata().ok()?;
            Some((entry.path(), (status.rdev(), status.mode())))
        })
        .collect()
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => tracing::info!("removed `{}`", path.display()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot remove `{}`", path.display())),
    }
    Ok(())
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
    fn another_mig_layout_is_seen() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path();
        fs::create_dir_all(folder.join("gpu0/mig")).unwrap();
        fs::create_dir_all(folder.join("mig")).unwrap();
        assert!(instances(folder).is_empty());
        fs::create_dir_all(folder.join("gpu0/mig/gi1/ci0")).unwrap();
        let before = instances(folder);
        assert_eq!(before.len(), 2);
        fs::create_dir_all(folder.join("gpu0/mig/gi1/ci1")).unwrap();
        assert_ne!(instances(folder), before);
    }

    #[test]
    fn a_node_that_comes_or_changes_is_seen() {
        let root = tempfile::tempdir().unwrap();
        let all = || -> Vec<String> {
            let found = DEVICES
                .iter()
                .flat_map(|(folder, names)| nodes(&root.path().join(folder), names));
            let name = |path: PathBuf| path.strip_prefix(root.path()).unwrap().display().to_string();
            let names = found.map(|(path, _)| name(path));
            // Folders of others.
            names
                .filter(|name| !matches!(name.as_str(), "dev/nvidia-caps" | "dev/nvidia-caps-imex-channels"))
                .collect()
        };
        assert!(all().is_empty());
        let paths = [
            "dev/gdrdrv",
            "dev/nvidia-fs0",
            "dev/nvidia0",
            "dev/dri/card1",
            "dev/dri/renderD128",
            "dev/infiniband/rdma_cm",
            "dev/infiniband/uverbs0",
            "dev/nvidia-caps/nvidia-cap1",
            "dev/nvidia-caps-imex-channels/channel0",
        ];
        for path in paths
            .into_iter()
            .chain(["dev/null", "dev/infiniband/umad0", "dev/dri/by-path/x"])
        {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        assert_eq!(all(), paths);
        let before = nodes(&root.path().join("dev"), DEVICES[0].1);
        fs::write(root.path().join("dev/nvidia1"), "").unwrap();
        assert_ne!(nodes(&root.path().join("dev"), DEVICES[0].1), before);
        assert!(
            nodes(&root.path().join("dev/nvidia0"), &["nvidia"]).is_empty(),
            "no folder"
        );
    }
}
