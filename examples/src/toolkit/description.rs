//! What the CDI files of a node are to hold.

use std::path::{Path, PathBuf};

use gpu_cdi::{
    Companion, DeviceFile, DeviceNumber, DriverFiles, Error, GenerateOptions, Kind, Spec, generate, generate_companion,
    generate_imex, generate_management, names,
};
use gpu_core::{
    Inventory,
    nvml::{Library, LibrarySearch, Parts},
};

use super::{arguments::Arguments, nodes::Nodes, programs, spec_file::SpecFile};

/// The file with the node's GPUs. The vendor's refresh service writes the same one: two files that describe the same
/// devices would make both useless.
const GPUS: &str = "nvidia.yaml";

/// The files of a node, as far as it could be read.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) files: Vec<SpecFile>,
    /// What a person should know: what could not be read, and what is left out.
    pub(super) remarks: Vec<String>,
    /// Whether all of it could be read: a driver may come, and a GPU that is lost be back, in a while.
    pub(super) in_full: bool,
}

impl Description {
    /// Reads the node, once. The files of what could not be read are left out: they stay as they are.
    pub(super) fn of(arguments: &Arguments) -> Self {
        let node = Node { arguments };
        let folder = arguments.specs();
        let mut description = Self {
            files: Vec::new(),
            remarks: Vec::new(),
            in_full: true,
        };
        let inventory = node.inventory();
        let driver = inventory.as_ref().ok().and_then(|inventory| inventory.driver.as_ref());
        let files = match node.files(driver.map(|driver| driver.version.to_string())) {
            Ok(files) => files,
            Err(error) => {
                description.remarks.push(format!("no CDI file is written: {error:#}"));
                description.in_full = false;
                return description;
            }
        };
        description
            .remarks
            .extend(files.problems.iter().map(ToString::to_string));
        description.companions(&node, &files, &folder);
        let management = file_name(&arguments.cdi_kind);
        description.add(folder.join(management), node.management(&files));
        let gpus = inventory.and_then(|inventory| description.gpus(&node, &inventory, &files));
        description.add(folder.join(GPUS), gpus);
        description
    }

    fn add(&mut self, path: PathBuf, spec: anyhow::Result<Spec>) {
        match spec {
            Ok(spec) => self.files.push(SpecFile { path, spec: Some(spec) }),
            Err(error) => {
                self.remarks
                    .push(format!("`{}` is not written: {error:#}", path.display()));
                self.in_full = false;
                if has_nothing(&error) {
                    self.files.push(SpecFile { path, spec: None });
                }
            }
        }
    }

    /// The devices beside GPUs that this node has, each of a kind of its own, so that the runtime finds them by their variables.
    fn companions(&mut self, node: &Node<'_>, files: &DriverFiles, folder: &Path) {
        let options = |class: &str| {
            let mut options = node.options();
            options.kind = kind(&options.kind, class);
            options
        };
        let companions = Companion::ALL.map(|companion| {
            let options = options(companion.as_str());
            (options.kind.clone(), generate_companion(companion, files, &options))
        });
        let imex = options(names::IMEX_CHANNEL_CLASS);
        let channels = (imex.kind.clone(), generate_imex(files, &[], &imex));
        for (kind, spec) in companions.into_iter().chain([channels]) {
            let path = folder.join(file_name(&kind));
            match spec {
                Ok(spec) => self.files.push(SpecFile { path, spec: Some(spec) }),
                // Gone, or never there: what is left of it would keep containers from starting.
                Err(error) if error.is_nothing_found() => self.files.push(SpecFile { path, spec: None }),
                Err(error) => self
                    .remarks
                    .push(format!("`{}` is not written: {error}", path.display())),
            }
        }
    }

    /// The GPUs that NVML tells of.
    fn gpus(&mut self, node: &Node<'_>, inventory: &Inventory, files: &DriverFiles) -> anyhow::Result<Spec> {
        self.remarks.extend(inventory.problems.iter().map(ToString::to_string));
        // One that is lost may be back in a while.
        self.in_full &= inventory.problems.is_empty();
        let generated = generate(inventory, files, &node.options())?;
        let skipped = generated.skipped.iter();
        self.remarks
            .extend(skipped.map(|device| format!("not described: {device}")));
        self.remarks.extend(files.missing());
        Ok(generated.spec)
    }
}

/// The names of the files that a description may write.
pub(super) fn file_names(arguments: &Arguments) -> impl Iterator<Item = String> {
    let vendor = GenerateOptions::default().kind;
    let companions = Companion::ALL.map(Companion::as_str);
    let kinds = companions
        .into_iter()
        .chain([names::IMEX_CHANNEL_CLASS])
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

/// A node, to be read.
struct Node<'a> {
    arguments: &'a Arguments,
}

impl Node<'_> {
    fn management(&self, files: &DriverFiles) -> anyhow::Result<Spec> {
        let mut options = self.options();
        options.kind = self.arguments.cdi_kind.clone();
        Ok(generate_management(files, &options)?)
    }

    /// What NVML tells. The driver is let go afterwards: it may be replaced while this program runs.
    fn inventory(&self) -> anyhow::Result<Inventory> {
        let library = Library::open(&LibrarySearch {
            library: self.arguments.nvml_library.clone(),
            driver_root: Some(self.arguments.driver_root_here()),
        })?;
        Ok(library
            .with_parts(Parts::DEVICES)
            .inventory(&self.arguments.host_root)?)
    }

    fn files(&self, version: Option<String>) -> anyhow::Result<DriverFiles> {
        let mut config = crate::driver_files::with_search_paths(self.arguments.driver_root_here());
        config.dev_root = Some(self.arguments.dev_root_here());
        config.sys_root.clone_from(&self.arguments.host_root);
        config.driver_version = version;
        let mut files = DriverFiles::discover(&config)?;
        if self.arguments.dry_run {
            files.device_nodes.extend(self.nodes_to_come());
        }
        Ok(files)
    }

    /// The nodes that would have been made by the time that the files are written.
    fn nodes_to_come(&self) -> Vec<DeviceFile> {
        let missing = [Nodes::Control, Nodes::Mig].map(|nodes| nodes.missing(self.arguments));
        let file = |node: crate::device_nodes::Node| DeviceFile {
            path: node.path,
            number: Some(DeviceNumber {
                major: node.major,
                minor: node.minor,
            }),
            mode: node.mode,
            uid: 0,
            gid: 0,
        };
        missing.into_iter().flatten().map(file).collect()
    }

    fn options(&self) -> GenerateOptions {
        let mut options = GenerateOptions::default();
        options.host_driver_root = Some(self.arguments.driver_root.clone());
        options.host_dev_root = Some(self.arguments.dev_root_on_host().to_owned());
        options.combined_hook = true;
        options.hook_path = self
            .arguments
            .folder()
            .join(programs::HOOK)
            .to_string_lossy()
            .into_owned();
        options
    }
}
