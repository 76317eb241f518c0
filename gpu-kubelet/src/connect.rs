use std::{
    error::Error as StdError,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::{Error, Result};

/// How long [`connect`] waits for the other side to accept. A local socket takes microseconds; the vendor's plugin allows as much.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects to the gRPC server that listens on a Unix socket.
///
/// Requests carry the authority `localhost`: servers answer a socket's path in its place with a protocol error, which is
/// why the kubelet does the same (Kubernetes 1.26, pull request 112597). A channel whose connection breaks connects to
/// the same path again at the next call, so it survives a restart of the other side.
///
/// Calls over the channel have no deadline of their own: give each request one
/// ([`Request::set_timeout`](tonic::Request::set_timeout)) or wrap it in a timeout.
///
/// # Errors
/// [`Error::Absent`] if there is no such socket or nobody listens on it, [`Error::TimedOut`] after [`CONNECT_TIMEOUT`],
/// [`Error::Connect`] otherwise. It does not fail if the other side accepts but does not speak gRPC; the first call then does.
pub async fn connect(path: impl AsRef<Path>) -> Result<Channel> {
    let path = path.as_ref();
    let endpoint = Endpoint::from_static("http://localhost");
    let connecting = endpoint.connect_with_connector(tower::service_fn({
        let path = path.to_owned();
        move |_: Uri| open(path.clone())
    }));
    match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(error)) => Err(classify(path, error)),
        Err(_) => Err(Error::TimedOut {
            what: "a connection attempt",
            path: path.to_owned(),
            after: CONNECT_TIMEOUT,
        }),
    }
}

async fn open(path: PathBuf) -> io::Result<TokioIo<UnixStream>> {
    UnixStream::connect(path).await.map(TokioIo::new)
}

/// Finds what the operating system answered beneath the layers that carried it.
fn classify(path: &Path, error: tonic::transport::Error) -> Error {
    let path = path.to_owned();
    let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
    while let Some(layer) = cause {
        if let Some(answer) = layer.downcast_ref::<io::Error>() {
            let source = copy(answer);
            return match source.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Error::Absent { path, source },
                _ => Error::Connect {
                    path,
                    source: source.into(),
                },
            };
        }
        cause = layer.source();
    }
    Error::Connect {
        path,
        source: error.into(),
    }
}

/// An [`io::Error`] cannot be cloned, nor taken out from beneath the error that carries it.
fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
