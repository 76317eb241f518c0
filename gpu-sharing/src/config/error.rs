use std::fmt;

use super::{ResourceName, UnknownWord};

/// A [`Result`](std::result::Result) whose error is this module's [`Error`] unless said otherwise.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a configuration is not accepted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is neither YAML nor JSON, holds one key twice, or several documents.
    #[error("the configuration is not YAML: {message}")]
    Syntax {
        /// What the parser said, with the place.
        message: String,
    },
    /// A version that is not `v1`.
    #[error("unknown version: {version}")]
    Version {
        /// The one that is written.
        version: String,
    },
    /// A key that nothing reads: misspelt, or in the wrong place. The vendor's programs pass over it in silence;
    /// [`Reading::Lenient`](super::Reading::Lenient) does so with a warning.
    #[error("{0}")]
    UnknownKey(UnknownKey),
    /// A value that its key does not take.
    #[error("`{key}` in line {line}: {reason}")]
    Value {
        /// The key from the top, joined by dots.
        key: String,
        /// Where the value begins, from 1.
        line: u64,
        /// Why, in the vendor's words where it has any.
        reason: String,
    },
    /// An environment variable that cannot be understood.
    #[error("{variable}=`{value}`: {reason}")]
    Environment {
        /// Its name.
        variable: &'static str,
        /// Its value.
        value: String,
        /// Why.
        reason: String,
    },
    /// A value that this program does not take, though another one that shares the file may.
    #[error("{0}")]
    Unsupported(#[from] UnknownWord),
    /// MPS limits memory by GPU and not by MIG device (device plugin).
    #[error("using --mig-strategy=mixed is not supported with MPS")]
    MpsWithMixedMig,
    /// Plugin and daemon meet in this directory (device plugin).
    #[error("using MPS requires --mps-root to be specified")]
    MpsWithoutRoot,
    /// A runtime would look for the hook program wherever it was started (device plugin). Name it from the root on.
    #[error(
        "the hook program `{path}` is not an absolute path (--nvidia-cdi-hook-path, NVIDIA_CDI_HOOK_PATH, NVIDIA_CTK_PATH or \
         flags.plugin.nvidiaCTKPath)"
    )]
    RelativeHookPath {
        /// What is configured.
        path: String,
    },
    /// No runtime would look for CDI names in annotations that begin with nothing (device plugin).
    #[error(
        "the prefix `` of CDI annotations is empty (--cdi-annotation-prefix, CDI_ANNOTATION_PREFIX or \
         flags.plugin.cdiAnnotationPrefix)"
    )]
    EmptyAnnotationPrefix,
}

/// A key that nothing reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKey {
    /// The key from the top, joined by dots.
    pub key: String,
    /// Its line, from 1.
    pub line: u64,
    /// The known key that it resembles most, or the place that it belongs to.
    pub nearest: Option<String>,
}

impl fmt::Display for UnknownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` in line {} is not a known key", self.key, self.line)?;
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean `{nearest}`?"),
            None => Ok(()),
        }
    }
}

/// What was passed over in a configuration that is accepted. For the log, once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A key that nothing reads, in a lenient reading.
    UnknownKey(UnknownKey),
    /// `resources` is there, and naming is not opted in.
    ResourcesIgnored,
    /// A `rename` is there, and naming is not opted in.
    RenameIgnored {
        /// `timeSlicing` or `mps`.
        section: &'static str,
    },
    /// `devices` names some, and naming is not opted in: all are shared.
    DevicesIgnored {
        /// `timeSlicing` or `mps`.
        section: &'static str,
    },
    /// An entry of `sharing` is about devices that an entry before it shares: of those the first counts, where the vendor's programs
    /// give out as many replicas as the largest says.
    SharedTwice {
        /// The entry, from the top.
        key: String,
        /// Its line, from 1; `None` where it is one only because `devices` is ignored.
        line: Option<u64>,
        /// The resource.
        resource: ResourceName,
    },
    /// Both ways of sharing are configured. As with the vendor's programs, MPS is used; they do not say so.
    TimeSlicingIgnored,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey(key) => write!(f, "{key}; it has no effect"),
            Self::ResourcesIgnored => {
                f.write_str("Customizing the 'resources' field is not yet supported in the config. Ignoring...")
            }
            Self::RenameIgnored { section } => write!(
                f,
                "Setting the 'rename' field in sharing.{section}.resources is not yet supported in the config. Ignoring..."
            ),
            Self::DevicesIgnored { section } => write!(
                f,
                "Customizing the 'devices' field in sharing.{section}.resources is not yet supported in the config. \
                 Ignoring..."
            ),
            Self::SharedTwice { key, line, resource } => {
                write!(f, "`{key}`")?;
                if let Some(line) = line {
                    write!(f, " in line {line}")?;
                }
                write!(
                    f,
                    " shares devices of `{resource}` that an entry before it shares: for those it has no effect"
                )
            }
            Self::TimeSlicingIgnored => {
                f.write_str("sharing.timeSlicing and sharing.mps are both configured: MPS is used, time-slicing is not")
            }
        }
    }
}
