use std::{iter, path::PathBuf};

/// A [`Result`](std::result::Result) whose error is this crate's [`Error`] unless said otherwise.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a plugin cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The plugin's own socket cannot be made. Remove what is in its place, or run as root.
    #[error("cannot serve on `{}`", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// What stands in the way.
        #[source]
        source: gpu_kubelet::Error,
    },
    /// The GPUs of the node cannot be read.
    #[error(transparent)]
    Hardware(#[from] gpu_core::Error),
    /// The CDI file cannot be made or written.
    #[error(transparent)]
    Cdi(#[from] gpu_cdi::Error),
}

impl Error {
    /// Whether waiting may help: a driver that is not there yet can still be installed or loaded.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Hardware(error) => error.is_transient(),
            Self::Socket { .. } | Self::Cdi(_) => false,
        }
    }

    /// The error and its causes in one line.
    pub(crate) fn with_causes(&self) -> String {
        let causes = iter::successors(Some(self as &dyn std::error::Error), |error| error.source());
        causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    }
}
