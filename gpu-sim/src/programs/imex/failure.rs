use std::{io, net::SocketAddr, path::PathBuf, process::ExitStatus};

/// Why `nvidia-imex` or `nvidia-imex-ctl` failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("unknown option `{0}`")]
    Option(String),
    #[error("option `{0}` needs a value")]
    NoValue(String),
    #[error("`{0}` is not a value for this option")]
    Value(String),
    #[error("no command was given: -q asks for the state")]
    NoCommand,
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` line {line}: {message}", path.display())]
    Config {
        path: PathBuf,
        line: usize,
        message: String,
    },
    #[error("`{}` has no command service: IMEX_CMD_ENABLED is not 1", .0.display())]
    NoCommandService(PathBuf),
    #[error("`{}` names no node", .0.display())]
    NoNodes(PathBuf),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot ask the service at {address}: {source}")]
    Ask { address: SocketAddr, source: io::Error },
    #[error("cannot write `{}`: {source}", path.display())]
    Log { path: PathBuf, source: io::Error },
    #[error("cannot start the service: {0}")]
    Start(io::Error),
    #[error("the service did not start ({0})")]
    Background(ExitStatus),
    #[error("cannot write the answer: {0}")]
    Output(io::Error),
}

impl Failure {
    pub(super) fn read(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Read { path, source }
    }

    pub(super) fn listening(address: SocketAddr) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Listen { address, source }
    }

    pub(super) fn asking(address: SocketAddr) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Ask { address, source }
    }
}
