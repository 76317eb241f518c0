use std::{
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
};

use object::read::ReadCache;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::{DiscoverConfig, found::Search, libraries};
use crate::elf;

/// A shared library of the driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Library {
    /// Its path, links followed.
    pub path: String,
    /// The name that programs are linked against; `None` if it has none or could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soname: Option<String>,
    /// Whether it could be read as a shared library.
    pub readable: bool,
}

impl Library {
    /// Its file name.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The folder it is in.
    pub fn dir(&self) -> &str {
        match self.path.rsplit_once('/') {
            Some(("", _)) | None => "/",
            Some((dir, _)) => dir,
        }
    }

    /// Reads what is at a path that has no links.
    pub(super) fn read(search: &mut Search, path: &Path) -> Option<Self> {
        let Some(text) = path.to_str() else {
            search.problem(path, &"its name is not UTF-8");
            return None;
        };
        let soname = search
            .root
            .open_at(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())
            .map_err(|error| error.to_string())
            .and_then(|fd| elf::soname(&ReadCache::new(File::from(fd))));
        if let Err(reason) = &soname {
            search.problem(path, &reason);
        }
        Some(Self {
            path: text.to_owned(),
            readable: soname.is_ok(),
            soname: soname.ok().flatten(),
        })
    }
}

/// What was found of the driver itself.
#[derive(Debug, Default)]
pub(super) struct DriverLibraries {
    pub(super) version: Option<String>,
    pub(super) dirs: Vec<String>,
    pub(super) libraries: Vec<Library>,
    pub(super) links: BTreeMap<String, String>,
}

/// The driver's version, its folders, every library in them that ends in the version, and the links beside these.
pub(super) fn find(search: &mut Search, config: &DiscoverConfig) -> DriverLibraries {
    let Some(version) = version(search, config) else {
        return DriverLibraries::default();
    };
    let mut dirs: Vec<PathBuf> = Vec::new();
    for library in libraries::locate(search, config, &format!("lib*.so.{version}")) {
        let dir = library.parent().unwrap_or(Path::new("/"));
        if !dirs.iter().any(|known| known == dir) {
            dirs.push(dir.to_owned());
        }
    }
    let with_vdpau: Vec<_> = dirs
        .iter()
        .cloned()
        .chain(dirs.iter().map(|dir| dir.join("vdpau")))
        .collect();
    let mut paths = libraries::in_dirs(search, &with_vdpau, &format!("*.so.{version}"));
    // Up to driver 450 the NVVM library had a version of its own.
    for path in libraries::in_dirs(search, &dirs, "libnvidia-nvvm70.so.*") {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    let libraries: Vec<_> = paths.iter().filter_map(|path| Library::read(search, path)).collect();
    let links = links_beside(search, &libraries);
    let dirs = dirs
        .into_iter()
        .filter_map(|dir| dir.into_os_string().into_string().ok());
    DriverLibraries {
        version: Some(version),
        dirs: dirs.collect(),
        libraries,
        links,
    }
}

/// The version in the name of a library that every driver has; `None` without one of the version asked for.
fn version(search: &mut Search, config: &DiscoverConfig) -> Option<String> {
    let suffix = config.driver_version.as_deref().unwrap_or("*.*");
    for library in ["libcuda.so.", "libnvidia-ml.so."] {
        let found = libraries::locate(search, config, &format!("{library}{suffix}"));
        let version = found
            .first()
            .and_then(|path| path.file_name()?.to_str()?.strip_prefix(library));
        if let Some(version) = version.filter(|version| !version.is_empty()) {
            return Some(version.to_owned());
        }
    }
    None
}

/// The links that stand beside libraries.
fn links_beside(search: &mut Search, libraries: &[Library]) -> BTreeMap<String, String> {
    let mut dirs: Vec<_> = libraries.iter().map(Library::dir).collect();
    dirs.dedup();
    let mut links = BTreeMap::new();
    for dir in dirs {
        let dir = Path::new(dir);
        for name in search.list(dir) {
            if crate::pattern::matches("*.so*", &name) {
                add_link(search, &dir.join(name), &mut links);
            }
        }
    }
    links
}

/// Adds a link with what is written in it; does nothing for what is no link.
pub(super) fn add_link(search: &Search, path: &Path, links: &mut BTreeMap<String, String>) {
    if let Ok(target) = search.root.read_link(path)
        && let (Some(path), Ok(target)) = (path.to_str(), target.into_string())
    {
        links.insert(path.to_owned(), target);
    }
}
