use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

/// A [`Result`](std::result::Result) whose error is this crate's [`Error`] unless said otherwise.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a socket could not be used or a plugin not registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody listens there: the kubelet is not up yet, restarts, or has another directory. Wait and try again.
    #[error("nobody listens on `{}`", path.display())]
    Absent {
        /// The socket.
        path: PathBuf,
        /// No such file, or connection refused.
        #[source]
        source: io::Error,
    },
    /// The socket is there but cannot be connected to: for want of permission, or the other side went away just then.
    #[error("cannot connect to `{}`", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the operating system or the HTTP/2 layer answered.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The other side did not answer in time. A busy node; try again.
    #[error("no answer to {what} on `{}` within {after:?}", path.display())]
    TimedOut {
        /// What was asked.
        what: &'static str,
        /// The socket.
        path: PathBuf,
        /// How long it was waited for.
        after: Duration,
    },
    /// The connection broke before there was an answer: the kubelet went away meanwhile. Try again.
    #[error("the connection to `{}` broke during {what}", path.display())]
    Broken {
        /// What was asked.
        what: &'static str,
        /// The socket.
        path: PathBuf,
        /// What the transport reported.
        #[source]
        status: tonic::Status,
    },
    /// The kubelet does not take the plugin. Waiting alone changes nothing: version, name or endpoint are wrong, or the
    /// plugin does not serve at its endpoint.
    #[error("the kubelet refused to register `{resource}`: {}", status.message())]
    Refused {
        /// The resource.
        resource: String,
        /// The kubelet's answer.
        status: tonic::Status,
    },
    /// The directory that should hold the socket does not exist: not a Kubernetes node, or the directory is not mounted here.
    #[error("no directory `{}` to put a socket into", path.display())]
    NoDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// Somebody already listens there: a second plugin for the same resource. Stop the other one.
    #[error("somebody already listens on `{}`", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something that is not a socket is in the way. It was left alone: remove it if it is not needed.
    #[error("`{}` is not a socket", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The socket could not be made.
    #[error("cannot listen on `{}`", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Whether the same call may succeed later although nobody changes anything on this side.
    ///
    /// True while the kubelet is absent, busy, or went away in the middle. False when the kubelet said no, and for
    /// every error about the plugin's own socket.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Absent { .. } | Self::TimedOut { .. } | Self::Broken { .. } => true,
            Self::Connect { source, .. } => source.downcast_ref().is_some_and(is_passing),
            Self::Refused { .. }
            | Self::NoDirectory { .. }
            | Self::InUse { .. }
            | Self::NotASocket { .. }
            | Self::Listen { .. } => false,
        }
    }

    pub(crate) fn listen(path: &Path, source: io::Error) -> Self {
        Self::Listen {
            path: path.to_owned(),
            source,
        }
    }
}

/// Whether the operating system may answer otherwise next time: the other side has a full queue or just went away.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, Interrupted, NotConnected, UnexpectedEof, WouldBlock,
    };
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | Interrupted | NotConnected | UnexpectedEof | WouldBlock
    )
}
