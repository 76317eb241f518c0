//! Who is at the other end of a socket.

use std::{
    io,
    mem::{MaybeUninit, size_of},
    os::{fd::AsRawFd as _, unix::net::UnixStream},
};

/// A process that has connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer {
    /// Its number here; 0 if it lives in a namespace that cannot be seen from here.
    pub(super) pid: u32,
    pub(super) uid: u32,
}

impl Peer {
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        let mut credentials = MaybeUninit::<libc::ucred>::zeroed();
        let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).map_err(io::Error::other)?;
        // SAFETY: the socket is open as long as the stream is borrowed; the option writes at most `length` bytes to a
        // structure of that size, and the length to a value of its own.
        let code = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                credentials.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if code != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: all zeros are a value of this structure of integers, and the kernel has filled it in.
        let credentials = unsafe { credentials.assume_init() };
        Ok(Self {
            pid: u32::try_from(credentials.pid).unwrap_or(0),
            uid: credentials.uid,
        })
    }
}
