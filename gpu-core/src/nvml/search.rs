use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{Error, Result, root::Root};

/// The SONAME of NVML, and what the loader is asked for when no file is named.
const SONAME: &str = "libnvidia-ml.so.1";

/// Where the driver library lies beneath a driver root, in the order of the vendor's device plugin
/// (k8s-device-plugin v0.20.0, `internal/plugin/manager`).
const DIRECTORIES: [&str; 6] = [
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
];

/// Where to look for the driver library.
///
/// The default asks the loader, which knows `LD_LIBRARY_PATH` and `/etc/ld.so.cache`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LibrarySearch {
    /// This file and no other.
    pub library: Option<PathBuf>,
    /// A driver root to look beneath before the loader is asked; `/` is left to the loader.
    pub driver_root: Option<PathBuf>,
}

impl LibrarySearch {
    pub(super) fn find(&self) -> Result<PathBuf> {
        if let Some(library) = &self.library {
            // A bare name is the loader's business; a path that is absent deserves a better word than the loader's.
            return if library.components().count() == 1 || library.exists() {
                Ok(library.clone())
            } else {
                Err(Error::LibraryNotFound {
                    tried: vec![library.clone()],
                })
            };
        }
        let root = self.driver_root.as_deref().filter(|root| *root != Path::new("/"));
        let beneath = root.map(Self::beneath).transpose()?;
        Ok(beneath.flatten().unwrap_or_else(|| PathBuf::from(SONAME)))
    }

    /// The driver library beneath a driver root, links followed as if the root were `/`; `None` if there is none. Its name has
    /// the driver's version.
    ///
    /// # Errors
    /// [`Error::Resolve`] if a folder or link on the way cannot be read.
    pub fn beneath(root: &Path) -> Result<Option<PathBuf>> {
        for directory in DIRECTORIES {
            if let Some(found) = resolve_beneath(root, &Path::new(directory).join(SONAME))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Every place that [`find`](Self::find) looks at, for a message.
    pub(super) fn places(&self) -> Vec<PathBuf> {
        let root = self.driver_root.as_deref().filter(|root| *root != Path::new("/"));
        root.into_iter()
            .flat_map(|root| DIRECTORIES.map(|directory| root.join(directory).join(SONAME)))
            .chain([PathBuf::from(SONAME)])
            .collect()
    }
}

/// The real path of `path` beneath `root`, symbolic links followed as if `root` were `/`; `None` where there is no such file.
/// The loader takes a path and no descriptor.
fn resolve_beneath(root: &Path, path: &Path) -> Result<Option<PathBuf>> {
    let real = || -> io::Result<PathBuf> {
        let found = Root::open(root)?.resolve(path)?.path;
        Ok(root.canonicalize()?.join(found.strip_prefix("/").unwrap_or(&found)))
    };
    match real() {
        Ok(real) => Ok(Some(real)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(source) => Err(Error::Resolve {
            root: root.to_owned(),
            path: path.to_owned(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_beneath_the_root() {
        let root = tempfile::tempdir().unwrap();
        let lib = root.path().join("usr/lib64");
        std::fs::create_dir_all(&lib).unwrap();
        std::fs::write(lib.join("libnvidia-ml.so.580.1"), "").unwrap();
        std::os::unix::fs::symlink("/usr/lib64/libnvidia-ml.so.580.1", lib.join(SONAME)).unwrap();
        let search = LibrarySearch {
            driver_root: Some(root.path().to_owned()),
            ..LibrarySearch::default()
        };
        let real = root
            .path()
            .canonicalize()
            .unwrap()
            .join("usr/lib64/libnvidia-ml.so.580.1");
        assert_eq!(search.find().unwrap(), real);
        assert_eq!(LibrarySearch::beneath(root.path()).unwrap(), Some(real));
        std::fs::remove_file(lib.join(SONAME)).unwrap();
        assert_eq!(LibrarySearch::beneath(root.path()).unwrap(), None);
    }
}
