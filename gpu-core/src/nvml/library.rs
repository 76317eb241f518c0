use std::{
    fmt,
    fs::File,
    io, mem,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use nvml_wrapper::{Nvml, error::NvmlError};
use object::{
    Endianness, ReadCache,
    elf::{FileHeader64, PT_LOAD, ProgramHeader64},
    read::elf::FileHeader as _,
};
use rustix::{
    fd::AsRawFd,
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
};

use super::guard::{StuckCall, Workers};
use crate::{Error, Result};

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
    fn find(&self) -> Result<PathBuf> {
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
        if let Some(root) = self.driver_root.as_deref().filter(|root| *root != Path::new("/")) {
            for directory in DIRECTORIES {
                if let Some(found) = resolve_beneath(root, &Path::new(directory).join(SONAME))? {
                    return Ok(found);
                }
            }
        }
        Ok(PathBuf::from(SONAME))
    }

    /// Every place that [`find`](Self::find) looks at, for a message.
    fn places(&self) -> Vec<PathBuf> {
        let root = self.driver_root.as_deref().filter(|root| *root != Path::new("/"));
        root.into_iter()
            .flat_map(|root| DIRECTORIES.map(|directory| root.join(directory).join(SONAME)))
            .chain([PathBuf::from(SONAME)])
            .collect()
    }
}

/// The real path of `path` beneath `root`, symbolic links followed as if `root` were `/`; `None` where there is no such file.
fn resolve_beneath(root: &Path, path: &Path) -> Result<Option<PathBuf>> {
    let error = |source: io::Error| Error::Resolve {
        root: root.to_owned(),
        path: path.to_owned(),
        source,
    };
    let directory = match openat(
        CWD,
        root,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Ok(directory) => directory,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(error(errno.into())),
    };
    match openat2(
        directory,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::IN_ROOT,
    ) {
        // The loader takes a path, not a descriptor: one opened by descriptor has no name to find its neighbours by.
        Ok(file) => std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
            .map(Some)
            .map_err(error),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(None),
        // Linux before 5.6, or a filter that does not know the call; and a root in which things are being renamed.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM | rustix::io::Errno::AGAIN) => {
            canonical_beneath(root, path).map_err(error)
        }
        Err(errno) => Err(error(errno.into())),
    }
}

/// The same without the kernel's help: absolute links are then not followed beneath the root, and what leads out of it is refused.
fn canonical_beneath(root: &Path, path: &Path) -> io::Result<Option<PathBuf>> {
    match root.join(path).canonicalize() {
        Ok(real) if real.starts_with(root.canonicalize()?) => Ok(Some(real)),
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The driver library, loaded and initialised.
///
/// Keep one for the life of a process and share it by [`Arc`](std::sync::Arc). Dropping it shuts NVML down, as soon as no call
/// is stuck in it.
pub struct Library {
    pub(super) nvml: Arc<Nvml>,
    path: PathBuf,
    /// How many inventories were read.
    generation: AtomicU64,
    pub(super) workers: Workers,
    pub(super) call_timeout: Duration,
}

impl Library {
    /// How long a call may take unless [`with_call_timeout`](Self::with_call_timeout) says otherwise.
    ///
    /// A GPU without persistence mode takes a second or two to wake, and some calls ten under load.
    pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);

    /// Finds, loads and initialises the library.
    ///
    /// # Errors
    /// [`Error::LibraryNotFound`], [`Error::LibraryUnusable`], [`Error::MissingSymbol`], [`Error::DriverNotLoaded`],
    /// [`Error::VersionMismatch`] or [`Error::Init`]. A node without GPUs, or with broken ones, is no error.
    pub fn open(search: &LibrarySearch) -> Result<Self> {
        let path = search.find()?;
        check_whole(&path)?;
        match Nvml::builder().lib_path(path.as_os_str()).init() {
            // `Nvml` calls this one when it is dropped, and panics if it is not there: then it is never dropped.
            Ok(nvml) if nvml.lib().nvmlShutdown.is_err() => {
                mem::forget(nvml);
                Err(Error::MissingSymbol {
                    path,
                    symbol: "nvmlShutdown",
                })
            }
            Ok(nvml) => Ok(Self {
                nvml: Arc::new(nvml),
                path,
                generation: AtomicU64::new(0),
                workers: Workers::default(),
                call_timeout: Self::CALL_TIMEOUT,
            }),
            Err(source) => Err(open_error(search, path, source)),
        }
    }

    /// The same, with another limit for how long a single call of a reading may take.
    ///
    /// A call that takes longer is left to itself: its GPU becomes a [`Problem`](crate::Problem), and is not asked again before
    /// the call returns.
    #[must_use]
    pub fn with_call_timeout(mut self, limit: Duration) -> Self {
        self.call_timeout = limit;
        self
    }

    /// The calls that took longer than allowed and have not returned since, each of which keeps a thread; one for each GPU at
    /// most, and one for the node.
    pub fn stuck_calls(&self) -> Vec<StuckCall> {
        self.workers.stuck_calls()
    }

    /// The number of the next reading.
    pub(super) fn next_generation(&self) -> u64 {
        self.generation.fetch_add(1, Relaxed) + 1
    }

    /// The file that was loaded, or the bare SONAME where the loader found it.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The loader maps a library as its headers say, and the kernel kills a process that reads past the end of the file.
///
/// A file that cannot be looked at, or is no ELF file, is left to the loader, which has words for that; so is a bare name, which
/// only the loader can find.
fn check_whole(path: &Path) -> Result<()> {
    if path.components().count() == 1 {
        return Ok(());
    }
    let Ok(metadata) = path.metadata() else { return Ok(()) };
    if !metadata.is_file() {
        return Ok(());
    }
    let Ok(file) = File::open(path) else { return Ok(()) };
    let size = metadata.len();
    let reader = ReadCache::new(file);
    let Ok(header) = FileHeader64::<Endianness>::parse(&reader) else {
        return Ok(());
    };
    let Ok(endian) = header.endian() else { return Ok(()) };
    let segments = header.program_headers(endian, &reader).unwrap_or_default();
    let end = |segment: &ProgramHeader64<Endianness>| {
        segment
            .p_offset
            .get(endian)
            .saturating_add(segment.p_filesz.get(endian))
    };
    let announced = segments
        .iter()
        .filter(|segment| segment.p_type.get(endian) == PT_LOAD)
        .map(end)
        .max();
    match announced {
        Some(announced) if announced > size => Err(Error::LibraryTruncated {
            path: path.to_owned(),
            size,
            announced,
        }),
        _ => Ok(()),
    }
}

fn open_error(search: &LibrarySearch, path: PathBuf, source: NvmlError) -> Error {
    match source {
        // The loader has one error for "no such file" and "cannot be loaded"; a bare name that it cannot find is the former.
        NvmlError::LibloadingError(ref error)
            if path.components().count() == 1 && causes(error).contains(&absent(&path)) =>
        {
            let tried = if search.library.is_some() {
                vec![path]
            } else {
                search.places()
            };
            Error::LibraryNotFound { tried }
        }
        NvmlError::LibloadingError(_) => Error::LibraryUnusable { path, source },
        NvmlError::FailedToLoadSymbol(_) => Error::MissingSymbol {
            path,
            symbol: "nvmlInit_v2",
        },
        NvmlError::DriverNotLoaded => Error::DriverNotLoaded { library: path },
        NvmlError::LibRmVersionMismatch => Error::VersionMismatch { library: path },
        source => Error::Init { library: path, source },
    }
}

/// How glibc's loader says that it does not find a library, and not one that this needs.
fn absent(path: &Path) -> String {
    format!("{}: cannot open shared object file: No such file", path.display())
}

/// An error and its sources in one line.
fn causes(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library")
            .field("path", &self.path)
            .finish_non_exhaustive()
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
    }

    #[test]
    fn a_named_library_that_is_absent_is_the_only_place_looked_at() {
        let search = LibrarySearch {
            library: Some("/nonexistent/libnvidia-ml.so.1".into()),
            ..LibrarySearch::default()
        };
        let error = Library::open(&search).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no NVIDIA driver library: there is no `/nonexistent/libnvidia-ml.so.1`"
        );
        assert!(error.is_transient());
    }

    #[test]
    fn a_file_that_is_no_library_is_unusable() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let search = LibrarySearch {
            library: Some(file.path().to_owned()),
            ..LibrarySearch::default()
        };
        let error = Library::open(&search).unwrap_err();
        assert!(matches!(error, Error::LibraryUnusable { .. }), "{error:?}");
    }

    #[test]
    fn a_library_that_is_not_nvml_lacks_its_first_function() {
        let search = LibrarySearch {
            library: Some("libc.so.6".into()),
            ..LibrarySearch::default()
        };
        let error = Library::open(&search).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the library `libc.so.6` has no function `nvmlInit_v2`"
        );
    }
}
