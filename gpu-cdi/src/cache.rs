//! The specs of a node, as a container runtime sees them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use crate::{ContainerEdits, Error, Format, QualifiedName, Result, Spec};

/// More than any spec has: 16 GPUs of 7 MIG devices make less than 1 MiB.
const LIMIT: u64 = 16 << 20;

/// All specs of some folders, and which of them says what a device is.
///
/// A later folder goes before an earlier one. Two files of one folder that describe the same device make it unusable:
/// no reader can tell which is meant. Files that are not named `.json` or `.yaml` are passed over, folders in folders
/// too, and a file that cannot be used is a listed problem that does not hide the others.
#[derive(Debug, Default)]
pub struct Cache {
    specs: Vec<(PathBuf, Spec)>,
    /// The place of a device: which spec, and which of its devices.
    devices: BTreeMap<QualifiedName, (usize, usize)>,
    problems: Vec<CacheProblem>,
}

/// A file or folder of specs that is not used, or not in full.
#[derive(Debug)]
pub struct CacheProblem {
    /// The file or folder.
    pub path: PathBuf,
    /// What is wrong with it.
    pub error: Error,
}

impl fmt::Display for CacheProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.path.display(), self.error)?;
        match std::error::Error::source(&self.error) {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl Cache {
    /// The folders that every CDI reader looks at unless told otherwise: static specs, and generated ones.
    pub const DIRS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

    /// Reads the specs of `dirs`, the least important first. A folder that does not exist is an empty one; one that is there
    /// twice, also by links, counts where it comes last.
    pub fn read<P: AsRef<Path>>(dirs: &[P]) -> Self {
        let mut cache = Self::default();
        let places: Vec<_> = dirs.iter().map(|dir| dir.as_ref().canonicalize().ok()).collect();
        for (i, dir) in dirs.iter().enumerate() {
            if places[i].is_some() && places[i + 1..].contains(&places[i]) {
                continue;
            }
            match list(dir.as_ref()) {
                Ok(paths) => cache.add_dir(paths),
                Err(source) => cache.problems.push(CacheProblem {
                    path: dir.as_ref().to_owned(),
                    error: Error::Read { source },
                }),
            }
        }
        cache
    }

    fn add_dir(&mut self, paths: Vec<PathBuf>) {
        let mut here: BTreeMap<QualifiedName, (usize, usize)> = BTreeMap::new();
        let mut conflicts: BTreeSet<QualifiedName> = BTreeSet::new();
        for path in paths {
            let spec = match read_spec(&path) {
                Ok(spec) => spec,
                Err(error) => {
                    self.problems.push(CacheProblem { path, error });
                    continue;
                }
            };
            let place = self.specs.len();
            for (index, device) in spec.devices.iter().enumerate() {
                let name = QualifiedName {
                    kind: spec.kind.clone(),
                    name: device.name.clone(),
                };
                if let Some((other, _)) = here.insert(name.clone(), (place, index)) {
                    self.problems.push(CacheProblem {
                        path: path.clone(),
                        error: Error::Conflict {
                            device: name.clone(),
                            other: self.specs[other].0.clone(),
                        },
                    });
                    conflicts.insert(name);
                }
            }
            self.specs.push((path, spec));
        }
        self.devices.extend(here);
        self.devices.retain(|name, _| !conflicts.contains(name));
    }

    /// The devices that can be asked for, in the order of their names.
    pub fn devices(&self) -> impl Iterator<Item = &QualifiedName> {
        self.devices.keys()
    }

    /// The specs that were read, in the order of folders and then of file names.
    pub fn specs(&self) -> impl Iterator<Item = (&Path, &Spec)> {
        self.specs.iter().map(|(path, spec)| (path.as_path(), spec))
    }

    /// The file that says what a device is.
    pub fn file_of(&self, device: &QualifiedName) -> Option<&Path> {
        let (spec, _) = self.devices.get(device)?;
        Some(&self.specs[*spec].0)
    }

    /// What is not used, in the order in which it was met.
    pub fn problems(&self) -> &[CacheProblem] {
        &self.problems
    }

    /// What a container gets that gets these devices, to be applied in this order: for each device what all of its spec
    /// get, if that has not been given yet, and then its own.
    ///
    /// # Errors
    /// [`Error::Unresolvable`] with every name that no spec describes; then none of the edits may be made.
    pub fn edits(&self, devices: &[QualifiedName]) -> Result<Vec<&ContainerEdits>> {
        let (mut edits, mut unknown) = (Vec::new(), Vec::new());
        let mut seen = BTreeSet::new();
        for name in devices {
            let Some((place, index)) = self.devices.get(name) else {
                unknown.push(name.clone());
                continue;
            };
            let spec = &self.specs[*place].1;
            if seen.insert(*place) {
                edits.push(&spec.container_edits);
            }
            edits.push(&spec.devices[*index].container_edits);
        }
        if unknown.is_empty() {
            Ok(edits)
        } else {
            Err(Error::Unresolvable { devices: unknown })
        }
    }
}

/// A [`Cache`] that can be asked whether it still says what is on disk.
#[derive(Debug)]
pub struct LiveCache {
    dirs: Vec<PathBuf>,
    seen: Vec<Seen>,
    cache: Cache,
}

/// What tells that a file is another one, or has been written to.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    path: PathBuf,
    inode: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl LiveCache {
    /// Reads the specs of `dirs`, the least important first. A folder may come later.
    pub fn new<P: Into<PathBuf>>(dirs: impl IntoIterator<Item = P>) -> Self {
        let dirs: Vec<PathBuf> = dirs.into_iter().map(Into::into).collect();
        // Before the specs: what changes in between is seen the next time.
        let seen = look(&dirs);
        let cache = Cache::read(&dirs);
        Self { dirs, seen, cache }
    }

    /// The specs as they were read last.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Reads the specs again if a file has come, gone or been written to, which it tells. Otherwise only the folders are
    /// listed, which takes some microseconds for each file: cheap enough to do before each use.
    pub fn refresh(&mut self) -> bool {
        let now = look(&self.dirs);
        if now == self.seen {
            return false;
        }
        self.seen = now;
        self.cache = Cache::read(&self.dirs);
        true
    }
}

/// The files as they are; one that cannot be looked at counts as not there.
fn look(dirs: &[PathBuf]) -> Vec<Seen> {
    let paths = dirs.iter().flat_map(|dir| list(dir).unwrap_or_default());
    let seen = |path: PathBuf| {
        let status = path.metadata().ok()?;
        Some(Seen {
            inode: (status.dev(), status.ino()),
            size: status.size(),
            changed: (status.ctime(), status.ctime_nsec()),
            path,
        })
    };
    paths.filter_map(seen).collect()
}

impl Spec {
    /// Reads a file as a container runtime does: unknown keys and broken rules of CDI are errors.
    ///
    /// # Errors
    /// [`Error::Extension`], [`Error::Read`], [`Error::Parse`] and [`Error::Invalid`].
    pub fn read(path: &Path) -> Result<Self> {
        read_spec(path)
    }
}

fn read_spec(path: &Path) -> Result<Spec> {
    let format = Format::of(path).ok_or_else(|| Error::Extension { path: path.to_owned() })?;
    let spec = Spec::from_text(&text(path).map_err(|source| Error::Read { source })?, format)?;
    spec.validate_as_library()?;
    Ok(spec)
}

fn text(path: &Path) -> io::Result<String> {
    let bytes = gpu_core::read_bytes(path, LIMIT)?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

/// The spec files of a folder by name.
fn list(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match dir.read_dir() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if Format::of(&path).is_some() && !path.is_dir() {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}
