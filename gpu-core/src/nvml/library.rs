use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    mem,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{
    LibrarySearch, Parts,
    guard::{Failure, Progress, StuckCall, Workers},
};
use crate::{Error, Result};
use nvml_wrapper::{Nvml, error::NvmlError};
use object::{
    Endianness, ReadCache,
    elf::{FileHeader64, PT_LOAD, ProgramHeader64},
    read::elf::FileHeader as _,
};

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
    pub(super) parts: Parts,
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
    /// [`Error::VersionMismatch`], [`Error::Hung`] or [`Error::Init`]. A node without GPUs, or with broken ones, is no error.
    pub fn open(search: &LibrarySearch) -> Result<Self> {
        Self::open_within(search, Self::CALL_TIMEOUT)
    }

    /// The same, with another limit for how long initialising may take, and any call of a reading later.
    ///
    /// Initialising that takes longer is left to itself: it keeps one thread, and the file is not tried again before it returns.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_within(search: &LibrarySearch, limit: Duration) -> Result<Self> {
        let path = search.find()?;
        check_whole(&path)?;
        Ok(Self {
            nvml: Arc::new(initialise(search, &path, limit)?),
            path,
            generation: AtomicU64::new(0),
            workers: Workers::default(),
            call_timeout: limit,
            parts: Parts::ALL,
        })
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

    /// The same, reading only these parts of a node: here, and in a [`Watcher`](super::Watcher) that is given it.
    #[must_use]
    pub fn with_parts(mut self, parts: Parts) -> Self {
        self.parts = parts;
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

/// Loads and initialises the file where that cannot hang this thread.
fn initialise(search: &LibrarySearch, path: &Path, limit: Duration) -> Result<Nvml> {
    /// Those who initialise, by file: so that one that hangs is found again, and does not keep another file from being tried.
    static OPENING: Mutex<BTreeMap<PathBuf, Arc<Workers>>> = Mutex::new(BTreeMap::new());
    let opening = || OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    let workers = Arc::clone(opening().entry(path.to_owned()).or_default());
    let file = path.to_owned();
    let done = workers.run(None, limit, move |progress: &Progress| {
        let init = || Nvml::builder().lib_path(file.as_os_str()).init();
        match progress.call("nvmlInit_v2", init) {
            // `Nvml` calls this one when it is dropped, and panics if it is not there: then it is never dropped.
            Ok(nvml) if nvml.lib().nvmlShutdown.is_err() => {
                mem::forget(nvml);
                Err(Unusable::NoShutdown)
            }
            answer => answer.map_err(Unusable::Refused),
        }
    });
    opening().retain(|_, workers| !workers.stuck_calls().is_empty());
    match done.map_err(Failure::into_error)? {
        Ok(nvml) => Ok(nvml),
        Err(Unusable::NoShutdown) => Err(Error::MissingSymbol {
            path: path.to_owned(),
            symbol: "nvmlShutdown",
        }),
        Err(Unusable::Refused(source)) => Err(open_error(search, path.to_owned(), source)),
    }
}

/// Why a library that was found is of no use.
enum Unusable {
    NoShutdown,
    Refused(NvmlError),
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
