use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use super::{
    DiscoverConfig,
    found::{Search, is_dir},
    ld_cache,
};

/// Where driver packages put libraries, in the order of the search (`pkg/lookup/library.go` of the vendor's toolkit).
const DIRS: [&str; 11] = [
    "/",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/lib64",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu/nvidia/current",
    "/lib/aarch64-linux-gnu/nvidia/current",
];

/// The libraries whose names fit `name`, links followed, each once.
///
/// The usual folders come first; only if they have none is the loader's cache asked, which knows drivers in places of
/// their own.
pub(super) fn locate(search: &mut Search, config: &DiscoverConfig, name: &str) -> Vec<PathBuf> {
    if !config.library_search_paths.is_empty() {
        return in_dirs(search, &config.library_search_paths, name);
    }
    let found = in_dirs(search, &DIRS.map(PathBuf::from), name);
    if found.is_empty() {
        in_cache(search, name)
    } else {
        found
    }
}

/// The files in `dirs` whose names fit `name`, links followed, each once.
pub(super) fn in_dirs(search: &mut Search, dirs: &[PathBuf], name: &str) -> Vec<PathBuf> {
    let mut found = Found::default();
    for dir in dirs {
        for entry in &*search.list(dir) {
            if crate::pattern::matches(name, entry) {
                found.add(search, &dir.join(entry));
            }
        }
    }
    found.paths
}

/// The libraries of the loader's cache whose file names, or those that their links go through, fit `name`.
fn in_cache(search: &mut Search, name: &str) -> Vec<PathBuf> {
    let cached = search.cached.take().unwrap_or_else(|| read_cache(search));
    let mut found = Found::default();
    for library in &cached {
        if library.names.iter().any(|file| crate::pattern::matches(name, file)) {
            found.add(search, &library.path);
        }
    }
    search.cached = Some(cached);
    found.paths
}

/// A library of the loader's cache.
#[derive(Debug)]
pub(super) struct CachedLibrary {
    path: PathBuf,
    /// Its file name, and those that its links go through.
    names: Vec<String>,
}

fn read_cache(search: &mut Search) -> Vec<CachedLibrary> {
    let cache = Path::new("/etc/ld.so.cache");
    let content = match search.root.read(cache, ld_cache::LIMIT) {
        Ok(content) => content,
        Err(error) => {
            search.failed(cache, &error);
            return Vec::new();
        }
    };
    let paths = ld_cache::libraries(&content).unwrap_or_else(|reason| {
        search.problem(cache, &reason);
        Vec::new()
    });
    let library = |path: String| CachedLibrary {
        names: chain(search, Path::new(&path)),
        path: PathBuf::from(path),
    };
    paths.into_iter().map(library).collect()
}

/// The file names of a path, of what it links to, and so on.
fn chain(search: &Search, path: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut path = path.to_owned();
    // As many steps as the kernel goes.
    for _ in 0..40 {
        if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
            names.push(name.to_owned());
        }
        let Ok(target) = search.root.read_link(&path) else {
            break;
        };
        path = path.parent().unwrap_or(Path::new("/")).join(target);
    }
    names
}

/// Files with their links followed, in the order in which they were met, each once.
#[derive(Debug, Default)]
struct Found {
    paths: Vec<PathBuf>,
    seen: HashSet<PathBuf>,
}

impl Found {
    /// A link to nothing is no library, and neither is a folder.
    fn add(&mut self, search: &mut Search, path: &Path) {
        if let Some((stat, resolved)) = search.target(path)
            && !is_dir(&stat)
            && self.seen.insert(resolved.path.clone())
        {
            self.paths.push(resolved.path);
        }
    }
}
