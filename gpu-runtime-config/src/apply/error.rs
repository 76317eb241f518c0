//! Why a plan was not carried out.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::error::Error as ConfigError;

/// Why a plan could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read, written or removed. The files that had been written are as before.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the operating system answered.
        #[source]
        source: std::io::Error,
    },
    /// A file is not what the plan was made for: somebody changed it since. Make a new plan.
    #[error("`{}` has changed since it was read", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The engine could not be restarted.
    #[error("cannot restart the engine by {method}: {reason}")]
    Restart {
        /// How it was attempted.
        method: String,
        /// What came of it.
        reason: String,
    },
    /// Process 1 is behind the engine's socket: systemd, in most cases, which made the socket for the engine and which SIGHUP
    /// would have read all of its units again. Restart the engine by systemd.
    #[error("process 1 is behind `{}`, not the engine: it gets no SIGHUP; restart the engine by systemd", socket.display())]
    NotTheEngine {
        /// The engine's socket.
        socket: PathBuf,
    },
    /// The engine did not come up with the new files, or was not to be waited for, and the old ones could not be put back. The
    /// receipt names them still: [`revert`](crate::revert) gives them back.
    #[error("the new files stay, after: {cause}: the old ones could not be put back")]
    NotTakenBack {
        /// Why they were to be.
        cause: Box<Error>,
        /// Why they could not be.
        #[source]
        source: Box<Error>,
    },
    /// It was told to end: [`Stop::stop`](super::Stop::stop).
    #[error("it was told to end {meanwhile}")]
    Stopped {
        /// During what, or before what.
        meanwhile: String,
    },
    /// What is said to be the host's root is no folder.
    #[error("cannot open the host's root `{}`", path.display())]
    HostRoot {
        /// Its path from here.
        path: PathBuf,
        /// What the operating system answered.
        #[source]
        source: std::io::Error,
    },
    /// Another program has been changing the files of this host's engines for ten minutes, or holds the lock for it.
    #[error("another program is changing the files of the engines beneath `{}`", path.display())]
    Busy {
        /// The host's root.
        path: PathBuf,
    },
    /// The engine did not come up in time.
    #[error("the engine behind `{}` did not come up within {} s: {reason}", socket.display(), timeout.as_secs())]
    Unhealthy {
        /// The engine's socket.
        socket: PathBuf,
        /// How long it was waited for.
        timeout: Duration,
        /// What was seen last.
        reason: String,
    },
    /// A file of the node says something that this crate cannot use.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl Error {
    pub(super) fn stopped(meanwhile: impl Into<String>) -> Error {
        Error::Stopped {
            meanwhile: meanwhile.into(),
        }
    }

    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    }
}
