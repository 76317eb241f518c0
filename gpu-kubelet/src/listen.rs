use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll},
};

use tokio::net::{UnixListener, UnixStream};
use tokio_stream::Stream;

use crate::{Error, Result};

/// Makes a Unix socket and listens on it.
///
/// A socket left behind by a program that is gone is replaced. The mode of the new one is 0600: the kubelet runs as
/// root, and nobody else has business with a plugin. Must be called in a tokio runtime with I/O.
///
/// # Errors
/// [`Error::InUse`] if somebody listens there, [`Error::NotASocket`] if something else is in the way (both are left
/// alone), [`Error::NoDirectory`] if the directory does not exist, [`Error::Listen`] otherwise, as for want of permission
/// or for a path longer than the 107 bytes that a socket's address can hold.
pub async fn listen(path: impl AsRef<Path>) -> Result<Incoming> {
    let path = path.as_ref();
    clear(path).await?;
    let listener = UnixListener::bind(path).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => Error::InUse { path: path.to_owned() },
        _ => Error::listen(path, source),
    })?;
    let place = Place::of(path).map_err(|source| Error::listen(path, source))?;
    let incoming = Incoming {
        listener,
        path: path.to_owned(),
        place,
    };
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(|source| Error::listen(path, source))?;
    Ok(incoming)
}

/// The connections to a Unix socket, as tonic's `serve_with_incoming` takes them. Made by [`listen`].
///
/// Dropped, it removes the socket's file, unless that is another by now: the kubelet removes all sockets when it starts,
/// and the plugin's successor may have put its own there.
#[derive(Debug)]
pub struct Incoming {
    listener: UnixListener,
    path: PathBuf,
    place: Place,
}

impl Incoming {
    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Stream for Incoming {
    type Item = io::Result<UnixStream>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.listener
            .poll_accept(cx)
            .map(|accepted| Some(accepted.map(|(stream, _)| stream)))
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // The listener is still open here, so that the kernel cannot have given its inode to another file.
        if Place::of(&self.path).is_ok_and(|place| place == self.place) {
            // There is nobody to tell, and the next `listen` replaces a socket left behind.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What tells a file from another that took its path.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    device: u64,
    inode: u64,
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

/// Removes a socket that nobody listens on.
async fn clear(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => return Err(Error::NotASocket { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return require_directory(path),
        Err(error) => return Err(Error::listen(path, error)),
    }
    match UnixStream::connect(path).await {
        // A queue too full to take the call is somebody's queue.
        Ok(_) => Err(Error::InUse { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Error::InUse { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::listen(path, error)),
            _ => Ok(()),
        },
        Err(error) => Err(Error::listen(path, error)),
    }
}

fn require_directory(path: &Path) -> Result<()> {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() && !directory.is_dir() => Err(Error::NoDirectory {
            path: directory.to_owned(),
        }),
        _ => Ok(()),
    }
}
