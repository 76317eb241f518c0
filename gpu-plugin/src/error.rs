use std::path::PathBuf;

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
}
