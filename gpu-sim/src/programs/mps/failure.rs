use std::{io, path::PathBuf, process::ExitStatus};

/// Why `nvidia-cuda-mps-control` failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("unknown option `{0}`: see nvidia-cuda-mps-control -h")]
    Option(String),
    /// In the vendor's words.
    #[error("An instance of this daemon is already running")]
    Running,
    /// In the vendor's words.
    #[error("Cannot find MPS control daemon process")]
    NoDaemon,
    #[error("the daemon ended before it had answered: {0}")]
    Broken(io::Error),
    #[error("cannot use `{}`: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot start the daemon: {0}")]
    Start(io::Error),
    #[error("the daemon did not start ({0})")]
    Background(ExitStatus),
    #[error("cannot read the commands: {0}")]
    Input(io::Error),
    #[error("cannot write the answer: {0}")]
    Output(io::Error),
}

impl Failure {
    pub(super) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
