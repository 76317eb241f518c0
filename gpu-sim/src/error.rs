use std::{io, path::PathBuf};

/// A [`Result`](std::result::Result) whose error is this crate's [`Error`] unless said otherwise.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a simulated node could not be made, read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No profile or board has this name.
    #[error("no profile or board `{name}`: choose one of {}", known.join(", "))]
    UnknownProfile {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// The driver version is not one that is simulated.
    #[error("driver `{version}` is not simulated: choose one of {}", known.join(", "))]
    UnknownDriver {
        /// What was asked for.
        version: String,
        /// Branches and full versions that are simulated.
        known: Vec<String>,
    },
    /// The profile has fewer places for GPUs than asked for.
    #[error("profile `{profile}` has room for {room} GPUs, not {asked}")]
    TooManyGpus {
        /// The profile.
        profile: String,
        /// How many GPUs were asked for.
        asked: usize,
        /// How many it can hold.
        room: usize,
    },
    /// The node has no GPU with this index.
    #[error("no GPU {index} on this node: it has {count}")]
    NoSuchGpu {
        /// The NVML index that was asked for.
        index: usize,
        /// How many GPUs the node has.
        count: usize,
    },
    /// The folder for a new node holds something already.
    #[error("`{}` is not empty: a new node needs an empty or absent folder", path.display())]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// The node's folder cannot stand in a list of folders; move the node, or load its library by its path.
    #[error("`{}` has a colon or semicolon in it, so LD_LIBRARY_PATH cannot name it", path.display())]
    NotListable {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is not a simulated node, or only the first part of one.
    #[error("`{}` is not a simulated node: it has no node.yaml", path.display())]
    NotANode {
        /// The folder.
        path: PathBuf,
    },
    /// `node.yaml` is not YAML or misses something; correct it at the place named.
    #[error("`{}`{}: {message}", path.display(), line.map(|line| format!(" line {line}")).unwrap_or_default())]
    NodeFile {
        /// The file.
        path: PathBuf,
        /// The line, where known.
        line: Option<u64>,
        /// What is wrong with it.
        message: String,
    },
    /// The file with what has happened to a node cannot be understood; make the node anew, or correct the place named.
    #[error("`{}`{}: {message}", path.display(), line.map(|line| format!(" line {line}")).unwrap_or_default())]
    State {
        /// The file.
        path: PathBuf,
        /// The line, where known.
        line: Option<u64>,
        /// What is wrong with it.
        message: String,
    },
    /// The simulated driver refuses a change, as the real one would.
    #[error("cannot {what}: {reason}")]
    Refused {
        /// The change.
        what: String,
        /// NVML's return code.
        code: u32,
        /// NVML's text for it.
        reason: String,
    },
    /// The board has no such MIG profile, or is none that can be partitioned.
    #[error("{board} has no MIG profile `{profile}`: choose one of {}", known.join(", "))]
    UnknownMigProfile {
        /// The board.
        board: String,
        /// What was asked for.
        profile: String,
        /// What the board offers; nothing if it cannot be partitioned.
        known: Vec<String>,
    },
    /// The simulated library is in none of the places where cargo and the installation put it.
    #[error("no simulated NVML library: looked for {}", looked_for.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", "))]
    LibraryNotFound {
        /// Where it was looked for.
        looked_for: Vec<PathBuf>,
    },
    /// A simulated library was found, but it comes from other sources than this program; build both together.
    #[error("`{}` is of build {}, this program of {expected}: build both together", path.display(), found.as_deref().unwrap_or("unknown"))]
    OtherBuild {
        /// The library.
        path: PathBuf,
        /// Its build id, if it has one.
        found: Option<String>,
        /// This program's.
        expected: &'static str,
    },
    /// A file or folder could not be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
    /// A file, folder, link or device node could not be made.
    #[error("cannot write `{}`", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn read(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Read { path, source }
    }

    pub(crate) fn write(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Write { path, source }
    }
}
