use std::{
    collections::BTreeMap,
    fs::File,
    io,
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
        let file = search
            .root
            .open_at(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
        let soname = match file {
            Ok(file) => elf::soname(&ReadCache::new(File::from(file))).map_err(|reason| search.problem(path, &reason)),
            Err(error) => {
                search.failed(path, &error);
                Err(())
            }
        };
        Some(Self {
            path: text.to_owned(),
            readable: soname.is_ok(),
            soname: soname.ok().flatten(),
        })
    }
}

/// Libraries that name no driver version and may be the driver's or the distribution's, mounted if they are asked for.
const EXPLICIT: [&str; 11] = [
    "libEGL",
    "libGL",
    "libGLESv1_CM",
    "libGLESv2",
    "libGLX",
    "libGLdispatch",
    "libOpenCL",
    "libOpenGL",
    "libnvidia-api",
    "libnvidia-egl-xcb",
    "libnvidia-egl-xlib",
];

/// Where distributions put libraries for 32-bit programs.
const DIRS_32: [&str; 5] = [
    "/usr/lib/i386-linux-gnu",
    "/usr/lib/i386-linux-gnu/nvidia/current",
    "/usr/lib32",
    "/usr/lib",
    "/lib32",
];

/// What was found of the driver itself.
#[derive(Debug, Default)]
pub(super) struct DriverLibraries {
    pub(super) version: Option<String>,
    pub(super) dirs: Vec<String>,
    pub(super) libraries: Vec<Library>,
    pub(super) libraries_32: Vec<Library>,
    pub(super) links: BTreeMap<String, String>,
}

/// The driver's version, its folders, every library in them that ends in the version, and the links beside these.
pub(super) fn find(search: &mut Search, config: &DiscoverConfig) -> DriverLibraries {
    let Some(version) = version(search, config) else {
        return DriverLibraries::default();
    };
    let dirs = folders(&libraries::locate(search, config, &format!("lib*.so.{version}")));
    let with_vdpau: Vec<_> = dirs
        .iter()
        .cloned()
        .chain(dirs.iter().map(|dir| dir.join("vdpau")))
        .collect();
    let mut paths = libraries::in_dirs(search, &with_vdpau, &format!("*.so.{version}"));
    // Up to driver 450 the NVVM library had a version of its own.
    let mut more = libraries::in_dirs(search, &dirs, "libnvidia-nvvm70.so.*");
    if config.explicit_libraries {
        for name in EXPLICIT {
            more.extend(libraries::locate(search, config, &format!("{name}.so*")));
        }
    }
    for path in more {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    let libraries: Vec<_> = paths.iter().filter_map(|path| Library::read(search, path)).collect();
    let libraries_32 = libraries_32(search, &version);
    let links = links_beside(search, libraries.iter().chain(&libraries_32));
    let dirs = dirs
        .into_iter()
        .filter_map(|dir| dir.into_os_string().into_string().ok());
    DriverLibraries {
        version: Some(version),
        dirs: dirs.collect(),
        libraries,
        libraries_32,
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

/// The folders of files, each once.
fn folders(files: &[PathBuf]) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = Vec::new();
    for dir in files.iter().map(|file| file.parent().unwrap_or(Path::new("/"))) {
        if !dirs.iter().any(|known| known == dir) {
            dirs.push(dir.to_owned());
        }
    }
    dirs
}

/// The driver's libraries for 32-bit programs, of the folders that distributions keep for them.
fn libraries_32(search: &mut Search, version: &str) -> Vec<Library> {
    let dirs = DIRS_32.map(PathBuf::from);
    let with_vdpau: Vec<_> = dirs
        .iter()
        .cloned()
        .chain(dirs.iter().map(|dir| dir.join("vdpau")))
        .collect();
    let paths = libraries::in_dirs(search, &with_vdpau, &format!("*.so.{version}"));
    // On some of them `/usr/lib` is for 32 bits, on others the only folder.
    let is_elf32 = |path: &&PathBuf| {
        let file = search
            .root
            .open_at(path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
        file.is_ok_and(|file| elf::is_32_bit(&ReadCache::new(File::from(file))))
    };
    let paths: Vec<_> = paths.iter().filter(is_elf32).cloned().collect();
    paths.iter().filter_map(|path| Library::read(search, path)).collect()
}

/// The links that stand beside libraries.
fn links_beside<'l>(search: &mut Search, libraries: impl Iterator<Item = &'l Library>) -> BTreeMap<String, String> {
    let mut dirs: Vec<_> = libraries.map(Library::dir).collect();
    dirs.dedup();
    let mut links = BTreeMap::new();
    for dir in dirs {
        let dir = Path::new(dir);
        for name in search.list(dir).iter() {
            if crate::pattern::matches("*.so*", name) {
                add_link(search, &dir.join(name), &mut links);
            }
        }
    }
    links
}

/// Adds a link with what is written in it; does nothing for what is no link.
pub(super) fn add_link(search: &mut Search, path: &Path, links: &mut BTreeMap<String, String>) {
    match search.root.read_link(path) {
        Ok(target) => {
            if let (Some(path), Ok(target)) = (path.to_str(), target.into_string()) {
                links.insert(path.to_owned(), target);
            }
        }
        // No link.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
        Err(error) => search.failed(path, &error),
    }
}
