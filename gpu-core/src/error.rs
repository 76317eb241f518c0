use std::path::PathBuf;

use nvml_wrapper::error::NvmlError;

/// A [`Result`](std::result::Result) whose error is this crate's [`Error`] unless said otherwise.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a node could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver library is absent: no NVIDIA driver on this node, or its directory is not mounted here.
    #[error("no NVIDIA driver library: there is no {}", places(tried))]
    LibraryNotFound {
        /// Where it was looked for, in order.
        tried: Vec<PathBuf>,
    },
    /// The file is there and the loader refuses it: another architecture, truncated, or a library it needs is missing.
    #[error("cannot load the NVIDIA driver library `{}`", path.display())]
    LibraryUnusable {
        /// The file.
        path: PathBuf,
        /// What the loader said.
        #[source]
        source: NvmlError,
    },
    /// The file ends before the segments that it announces: it is being copied, or was cut off. Loading it would kill this
    /// process.
    #[error("the NVIDIA driver library `{}` is incomplete: it has {size} bytes and announces {announced}", path.display())]
    LibraryTruncated {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The size that its headers speak of.
        announced: u64,
    },
    /// The library has no such function: it is not NVML, or of another time.
    #[error("the library `{}` has no function `{symbol}`", path.display())]
    MissingSymbol {
        /// The file.
        path: PathBuf,
        /// The function.
        symbol: &'static str,
    },
    /// The library is there and the kernel driver is not: load the module, or give this process the device nodes.
    #[error("the NVIDIA kernel driver is not loaded, or /dev/nvidiactl is not given to this process (asked `{}`)", library.display())]
    DriverNotLoaded {
        /// The library that said so.
        library: PathBuf,
    },
    /// Library and kernel module are of different versions (NVML 18): the driver was upgraded under a running node.
    /// Reload the module or reboot the node.
    #[error("driver/library version mismatch: `{}` is not of the version of the loaded kernel driver; reload the driver or reboot", library.display())]
    VersionMismatch {
        /// The library that said so.
        library: PathBuf,
    },
    /// The library could not start for another reason.
    #[error("cannot initialise the NVIDIA driver library `{}`", library.display())]
    Init {
        /// The library.
        library: PathBuf,
        /// What it answered.
        #[source]
        source: NvmlError,
    },
    /// A call about the whole node failed.
    #[error("`{call}` failed")]
    Call {
        /// The NVML function.
        call: &'static str,
        /// What it answered.
        #[source]
        source: NvmlError,
    },
    /// A call about the whole node has not returned for longer than was allowed. It may still return one day.
    #[error("`{call}` has not returned for {} s", elapsed.as_secs())]
    Hung {
        /// The NVML function.
        call: &'static str,
        /// How long it has not returned for.
        elapsed: std::time::Duration,
    },
    /// The driver answered something that has no meaning here.
    #[error("`{call}` answered `{answer}`")]
    Answer {
        /// The NVML function.
        call: &'static str,
        /// The answer.
        answer: String,
        /// Why it has no meaning.
        #[source]
        source: crate::ParseVersionError,
    },
    /// The driver answered something that cannot be: it is broken, or it is not NVML.
    #[error("`{call}` answered `{answer}`, which cannot be")]
    Implausible {
        /// The NVML function.
        call: &'static str,
        /// The answer.
        answer: String,
    },
    /// A path could not be resolved beneath its root.
    #[error("cannot resolve `{}` beneath `{}`", path.display(), root.display())]
    Resolve {
        /// The root.
        root: PathBuf,
        /// The path within it.
        path: PathBuf,
        /// What the operating system answered.
        #[source]
        source: std::io::Error,
    },
    /// A thread that calls NVML could not be started.
    #[error("cannot start a thread to call the NVIDIA driver library")]
    Thread(#[source] std::io::Error),
}

impl Error {
    /// Whether the library is not of the version of the loaded kernel driver: it was replaced. A process that has the old
    /// library loaded does not get the new one.
    pub fn is_version_mismatch(&self) -> bool {
        matches!(
            self,
            Self::VersionMismatch { .. }
                | Self::Call {
                    source: NvmlError::LibRmVersionMismatch,
                    ..
                }
        )
    }

    /// Whether waiting may help: a driver that is not there yet can still be installed or loaded.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::LibraryNotFound { .. }
                | Self::LibraryTruncated { .. }
                | Self::DriverNotLoaded { .. }
                | Self::VersionMismatch { .. }
                | Self::Init { .. }
                | Self::Call { .. }
                | Self::Hung { .. }
        )
    }
}

/// A bare file name stands for the loader's search path.
fn places(paths: &[PathBuf]) -> String {
    let place = |path: &PathBuf| match path.components().count() {
        1 => format!("`{}` in the loader's search path", path.display()),
        _ => format!("`{}`", path.display()),
    };
    paths.iter().map(place).collect::<Vec<_>>().join(" and no ")
}
