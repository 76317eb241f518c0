use std::{io, path::PathBuf};

use crate::{InvalidSpec, QualifiedName, SkippedDevice};

/// A [`Result`](std::result::Result) whose error is this crate's [`Error`] unless said otherwise.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why no spec could be read, made or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The driver root, the device root or the place of `/sys` and `/proc` is no folder that can be opened.
    #[error("cannot open the {what} `{}`", path.display())]
    Root {
        /// Which of them.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
    /// A root, or the `ldconfig` of hooks, whose path depends on where a program was started: what a spec says would be wrong
    /// elsewhere.
    #[error("the {what} `{}` is not an absolute path", path.display())]
    RelativeRoot {
        /// Which of them.
        what: &'static str,
        /// Its path.
        path: PathBuf,
    },
    /// A root whose path is not UTF-8, as every text in a spec is.
    #[error("the {what} `{}` is not UTF-8: no spec can name it", path.display())]
    UnnamableRoot {
        /// Which of them.
        what: &'static str,
        /// Its path.
        path: PathBuf,
    },
    /// This process may open no more files, or has no more memory: what it sees of a driver root is not all there is.
    #[error("cannot search on from `{}`", path.display())]
    Exhausted {
        /// Where it ended.
        path: PathBuf,
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
    /// The driver root holds no driver libraries: no driver is installed there, or of another version.
    #[error(
        "no NVIDIA driver libraries{} in the driver root `{root}`",
        version.as_ref().map(|version| format!(" of version {version}")).unwrap_or_default()
    )]
    NoDriverLibraries {
        /// The driver root.
        root: String,
        /// The version that was looked for; `None` if it was to be read off the libraries.
        version: Option<String>,
    },
    /// Not one device is left to describe: the node has no GPU, or each was skipped.
    #[error("no GPU to describe{}", list(skipped))]
    NothingToDescribe {
        /// Why the GPUs that exist were skipped.
        skipped: Vec<SkippedDevice>,
    },
    /// The files of a Tegra machine say nothing of which GPU they are for, and it has more than its own.
    #[error("{count} GPUs on a machine that describes its GPU by csv files: only one can be described")]
    TegraWithOtherGpus {
        /// How many NVML tells of.
        count: usize,
    },
    /// There is no device of the kind that was to be described.
    #[error("no {what} in the device root `{root}`")]
    NothingFound {
        /// What was looked for.
        what: String,
        /// The device root.
        root: String,
    },
    /// A GPU or MIG device was asked for that the node does not have.
    #[error("no GPU or MIG device `{id}` on this node, which has {}", quoted(known))]
    UnknownDevice {
        /// What was asked for.
        id: String,
        /// The indices of those that it has.
        known: Vec<String>,
    },
    /// A file or folder of specs could not be read.
    #[error("cannot read it")]
    Read {
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
    /// Another file of the same folder describes the same device, so that nobody can use it: remove one of the two.
    #[error("`{device}` is described by `{}` too, so that it cannot be used", other.display())]
    Conflict {
        /// The device.
        device: QualifiedName,
        /// The other file.
        other: PathBuf,
    },
    /// Devices were asked for that no spec describes: `gpuctl cdi list` shows those that there are.
    #[error("unresolvable CDI devices {}", names(devices))]
    Unresolvable {
        /// The names, as asked for.
        devices: Vec<QualifiedName>,
    },
    /// The spec breaks a rule of CDI.
    #[error(transparent)]
    Invalid(#[from] InvalidSpec),
    /// A text is no CDI spec.
    #[error("not a CDI spec: {reason}")]
    Parse {
        /// What the parser found, with its place.
        reason: String,
    },
    /// A spec could not be turned into text.
    #[error("cannot encode the CDI spec: {reason}")]
    Encode {
        /// What the serialiser said.
        reason: String,
    },
    /// A file to write has an extension that CDI readers pass over.
    #[error("`{}` is neither a .json nor a .yaml file, so that no CDI reader would look at it", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
    },
    /// A folder for specs could not be made.
    #[error("cannot create the CDI folder `{}`", path.display())]
    CreateDir {
        /// The folder.
        path: PathBuf,
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
    /// Others may change what is in a folder for specs, and a spec names programs that run as root: take the folder's
    /// permissions from them.
    #[error(
        "the CDI folder `{}` can be changed by others: it belongs to user {owner} and has mode {mode:04o}",
        path.display()
    )]
    UnsafeDir {
        /// The folder.
        path: PathBuf,
        /// The id of its owner.
        owner: u32,
        /// Its permissions.
        mode: u32,
    },
    /// A spec is in place and readers see it, but after a crash what was there before may be back.
    #[error("the CDI spec `{}` is written, but its folder could not be synced", path.display())]
    NotSynced {
        /// The file.
        path: PathBuf,
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
    /// A spec could not be written; what was there before is unchanged.
    #[error("cannot write the CDI spec `{}`", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Whether the node simply has nothing of what was to be described, so that there is nothing to repair.
    pub fn is_nothing_found(&self) -> bool {
        match self {
            Self::NothingFound { .. } => true,
            Self::NothingToDescribe { skipped } => skipped.is_empty(),
            _ => false,
        }
    }
}

fn quoted(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    if names.is_empty() {
        return "none".to_owned();
    }
    names.join(", ")
}

fn names(devices: &[QualifiedName]) -> String {
    let names: Vec<_> = devices.iter().map(ToString::to_string).collect();
    names.join(", ")
}

fn list(skipped: &[SkippedDevice]) -> String {
    let mut text = String::new();
    for (i, device) in skipped.iter().enumerate() {
        text.push_str(if i == 0 { ": " } else { "; " });
        text.push_str(&device.to_string());
    }
    text
}
