//! Which process is behind an engine's socket.

use std::{
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    cmsg_space,
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags,
        SocketType, connect, recvmsg, send, socket_with,
        sockopt::{Timeout, set_socket_passcred, set_socket_timeout, socket_peercred},
    },
    process::Pid,
};

use super::{Stop, host_path::resolve, patience::Patience};

/// How long an engine may take to accept a connection and to answer: one that systemd starts for it has to start first.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// How long the kernel waits at once.
const SLICE: Duration = Duration::from_millis(100);

/// What every Docker answers at once, whatever it is doing.
const QUESTION: &[u8] = b"GET /_ping HTTP/1.0\r\n\r\n";

/// The socket of an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket {
    /// Where it is on the host.
    pub path: PathBuf,
    /// Whether the engine speaks HTTP there and is asked: who answers is it. Otherwise it is the one who listens.
    ///
    /// containerd and CRI-O make their sockets themselves. Docker's is most often systemd's (`docker.socket`), which hands it
    /// over: then it is systemd that listens, to the end.
    pub http: bool,
}

impl Socket {
    /// The socket of an engine that makes it itself.
    pub fn own(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            http: false,
        }
    }

    /// The socket of an engine that speaks HTTP.
    pub fn http(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            http: true,
        }
    }

    /// Whether nobody can be behind it now. An engine that speaks HTTP is not asked, as systemd would start it for that: of
    /// such a one it is told only that there is no socket.
    pub fn is_deserted(&self, host_root: &Path, stop: &Stop) -> bool {
        let Ok(path) = resolve(host_root, &self.path) else {
            return false;
        };
        if self.http {
            return !path.exists();
        }
        connected(&path, Patience::of(LIMIT, stop)).is_err_and(|error| is_nobody(&error))
    }

    /// The process behind it; `None` if it is in a process namespace that is not visible from here.
    pub(super) fn process(&self, root: &Path, patience: Patience<'_>) -> io::Result<Option<Pid>> {
        let path = resolve(root, &self.path).map_err(io::Error::other)?;
        let socket = connected(&path, patience)?;
        let pid = if self.http {
            answering(&socket, patience)?
        } else {
            socket_peercred(&socket)?.pid
        };
        Ok(Some(pid).filter(|pid| pid.as_raw_nonzero().get() > 0))
    }
}

/// Whether nobody is behind a socket, so that there is nobody to tell either.
pub(super) fn is_nobody(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::ConnectionRefused
    )
}

fn connected(path: &Path, patience: Patience<'_>) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    for timeout in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, timeout, Some(SLICE))?;
    }
    let address = SocketAddrUnix::new(path)?;
    // An engine that is stopped or hangs has a queue that is full.
    retried(patience, || connect(&socket, &address))?;
    Ok(socket)
}

/// The process that answers.
fn answering(socket: &OwnedFd, patience: Patience<'_>) -> io::Result<Pid> {
    set_socket_passcred(socket, true)?;
    retried(patience, || send(socket, QUESTION, SendFlags::NOSIGNAL))?;
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut answer = [0; 64];
    retried(patience, || {
        recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut answer)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let sender = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(credentials) => Some(credentials.pid),
        _ => None,
    });
    sender.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "it closes connections without an answer"))
}

fn retried<T>(patience: Patience<'_>, mut attempt: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match attempt() {
            Err(Errno::AGAIN | Errno::INTR) => patience.check()?,
            other => return Ok(other?),
        }
    }
}
