use std::{io, path::PathBuf, process::ExitStatus};

/// A [`Result`](std::result::Result) whose error is the hooks' [`Error`] unless said otherwise.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a hook failed; the container does not start then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arguments are not those of a hook.
    #[error("{message}")]
    Usage {
        /// What is wrong with them.
        message: String,
    },
    /// The container's state could not be read.
    #[error("cannot read the container's state from {from}")]
    ReadState {
        /// Where it should have come from.
        from: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The container's state or configuration is not what the OCI runtime specification says.
    #[error("{what} is not valid: {reason}")]
    Malformed {
        /// The state, or the path of the configuration.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The container's root is the host's: a hook would change the host.
    #[error("the container's root `{}` is the root of the host", path.display())]
    RootIsHost {
        /// The root as the state has it.
        path: PathBuf,
    },
    /// The host's `ldconfig` may not be run in a container.
    #[error("cannot use `{}` as ldconfig: {reason}", path.display())]
    Ldconfig {
        /// The program.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// `ldconfig` ran in the container and failed; what it said is on stderr.
    #[error("ldconfig failed in the container: {status}")]
    LdconfigFailed {
        /// How it ended.
        status: ExitStatus,
    },
    /// The steps in the namespaces of their own failed.
    #[error("cannot update the loader's cache: {reason}")]
    Isolated {
        /// What the process there reported.
        reason: String,
    },
    /// The process has other threads, so that it can neither fork nor empty its environment safely.
    #[error("hooks need a process with a single thread")]
    OtherThreads,
    /// Something could not be done with a file, a mount or a process.
    #[error("cannot {action}")]
    Io {
        /// What, and on what.
        action: String,
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Whether the caller is to blame: exit code 2 instead of 1.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage { .. })
    }

    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::Usage {
            message: message.into(),
        }
    }

    /// Turns an answer of the operating system into one that says what was attempted.
    pub(super) fn io<E: Into<io::Error>>(action: impl Into<String>) -> impl FnOnce(E) -> Self {
        let action = action.into();
        move |source| Self::Io {
            action,
            source: source.into(),
        }
    }
}
