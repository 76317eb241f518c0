//! What the CDI files of a node are to hold.

use std::path::Path;

use gpu_cdi::{
    Companion, DeviceFile, DeviceNumber, DriverFiles, Error, GenerateOptions, Kind, Spec, generate, generate_companion,
    generate_imex, generate_management,
};
use gpu_core::nvml::{Library, LibrarySearch, Parts};

use super::{arguments::Arguments, nodes::Nodes, programs, spec_file::SpecFile};

/// The file with the node's GPUs. The vendor's refresh service writes the same one: two files that describe the same
/// devices would make both useless.
const GPUS: &str = "nvidia.yaml";

/// The class of the devices that are IMEX channels.
const IMEX_CHANNEL: &str = "imex-channel";

/// The files of a node, as far as it could be read.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) files: Vec<SpecFile>,
    /// Whether all of it could be read: a driver may come, and a GPU that is lost be back, in a while.
    pub(super) in_full: bool,
}

impl Description {
    /// Reads the node. What could not be read is logged, and its files are left out: they stay as they are.
    pub(super) fn of(arguments: &Arguments) -> Self {
        let node = Node { arguments };
        let folder = arguments.specs();
        let mut description = Self {
            files: node.companions(&folder),
            in_full: true,
        };
        let described = [
            (file_name(&arguments.cdi_kind), node.management()),
            (GPUS.to_owned(), node.gpus()),
        ];
        for (name, described) in described {
            description.add(&folder, &name, described);
        }
        description
    }

    fn add(&mut self, folder: &Path, name: &str, described: anyhow::Result<Described>) {
        let path = folder.join(name);
        match described {
            Ok(Described { spec, in_full }) => {
                self.in_full &= in_full;
                self.files.push(SpecFile { path, spec: Some(spec) });
            }
            Err(error) => {
                tracing::warn!("`{name}` is not written: {error:#}");
                self.in_full = false;
                if has_nothing(&error) {
                    self.files.push(SpecFile { path, spec: None });
                }
            }
        }
    }
}

/// The names of the files that a description may write.
pub(super) fn names(arguments: &Arguments) -> impl Iterator<Item = String> {
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

/// A node, to be read.
struct Node<'a> {
    arguments: &'a Arguments,
}

impl Node<'_> {
    fn management(&self) -> anyhow::Result<Described> {
        let mut options = self.options();
        options.kind = self.arguments.cdi_kind.clone();
        Ok(Described {
            spec: generate_management(&self.files(None)?, &options)?,
            in_full: true,
        })
    }

    /// The devices beside GPUs that this node has, each of a kind of its own, so that the runtime finds them by their variables.
    fn companions(&self, folder: &Path) -> Vec<SpecFile> {
        // Why there are none is said where the GPUs are described.
        let Ok(files) = self.files(None) else {
            return Vec::new();
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
        let file = |(kind, spec): (Kind, gpu_cdi::Result<Spec>)| {
            let path = folder.join(file_name(&kind));
            match spec {
                Ok(spec) => Some(SpecFile { path, spec: Some(spec) }),
                // Gone, or never there: what is left of it would keep containers from starting.
                Err(error) if error.is_nothing_found() => Some(SpecFile { path, spec: None }),
                Err(error) => {
                    tracing::warn!("`{}` is not written: {error}", path.display());
                    None
                }
            }
        };
        companions.into_iter().chain([channels]).filter_map(file).collect()
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
        let mut files = DriverFiles::discover(&config)?;
        for problem in &files.problems {
            tracing::warn!("{problem}");
        }
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
