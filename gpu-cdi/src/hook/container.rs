use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Write as _},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

use gpu_core::root::Root;
use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
    rand::GetRandomFlags,
};

use super::{Error, Result};

/// A container's root, in which paths lead nowhere else.
#[derive(Debug)]
pub(super) struct Container {
    pub(super) root: Root,
}

impl Container {
    /// Opens a container's root; refuses the host's.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let action = || format!("open the container's root `{}`", path.display());
        let root = Root::open(path).map_err(Error::io(action()))?;
        let of_container = rustix::fs::fstat(root.as_fd()).map_err(Error::io(action()))?;
        let of_host = rustix::fs::stat("/").map_err(Error::io("look at `/`"))?;
        if (of_container.st_dev, of_container.st_ino) == (of_host.st_dev, of_host.st_ino) {
            return Err(Error::RootIsHost { path: path.to_owned() });
        }
        Ok(Self { root })
    }

    /// The container's root, once it is the root of this process.
    pub(super) fn entered() -> Result<Self> {
        let root = Root::open(Path::new("/")).map_err(Error::io("open the container's root"))?;
        Ok(Self { root })
    }

    /// Opens a folder, made if it is missing together with those above it.
    ///
    /// Links that are there are followed within the container. `..` is refused: nobody who means well needs it.
    pub(super) fn folder(&self, path: &Path, mode: Mode) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut so_far = PathBuf::from("/");
        let mut folder = self.root.open_at(&so_far, flags, Mode::empty())?;
        for component in path.components() {
            let name = match component {
                Component::Normal(name) => name,
                Component::RootDir | Component::CurDir => continue,
                Component::ParentDir | Component::Prefix(_) => {
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, "`..` in the path"));
                }
            };
            so_far.push(name);
            folder = match self.root.open_at(&so_far, flags, Mode::empty()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match rustix::fs::mkdirat(&folder, name, mode) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    // Not through a link that someone put there in between, or one to nothing.
                    rustix::fs::openat(&folder, name, flags | OFlags::NOFOLLOW, Mode::empty())?
                }
                answer => answer?,
            };
        }
        Ok(folder)
    }

    /// Puts a file in place, whole or not at all; what was there before, a link too, is replaced and not followed.
    pub(super) fn put_file(&self, path: &Path, content: &[u8], mode: Mode, folder_mode: Mode) -> io::Result<()> {
        let (folder, name) = self.place(path, folder_mode)?;
        put(folder.as_fd(), name, |temporary| {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = File::from(rustix::fs::openat(&folder, temporary, flags, mode)?);
            file.write_all(content)?;
            // The umask took its share.
            Ok(rustix::fs::fchmod(&file, mode)?)
        })
    }

    /// Puts a link in place; `false` if it is there already.
    pub(super) fn put_link(&self, path: &Path, target: &str) -> io::Result<bool> {
        let (folder, name) = self.place(path, Mode::from(0o755))?;
        match rustix::fs::readlinkat(&folder, name, Vec::new()) {
            Ok(present) if present.as_bytes() == target.as_bytes() => return Ok(false),
            _ => {}
        }
        put(folder.as_fd(), name, |temporary| {
            Ok(rustix::fs::symlinkat(target, &folder, temporary)?)
        })?;
        Ok(true)
    }

    /// The folder of a path, made if need be, and the name in it.
    fn place<'p>(&self, path: &'p Path, folder_mode: Mode) -> io::Result<(OwnedFd, &'p OsStr)> {
        let name = path
            .file_name()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path does not end in a name"))?;
        let folder = self.folder(path.parent().unwrap_or(Path::new("/")), folder_mode)?;
        Ok((folder, name))
    }
}

/// Makes something under a name that no one can know, and renames it.
fn put(folder: BorrowedFd<'_>, name: &OsStr, make: impl FnOnce(&str) -> io::Result<()>) -> io::Result<()> {
    let mut random = [0u8; 8];
    rustix::rand::getrandom(&mut random, GetRandomFlags::empty())?;
    let temporary = format!(".nvcr-{:016x}", u64::from_ne_bytes(random));
    let made = make(&temporary).and_then(|()| Ok(rustix::fs::renameat(folder, &*temporary, folder, name)?));
    if made.is_err() {
        // Best effort: the first error is the one to report.
        let _ = rustix::fs::unlinkat(folder, &*temporary, AtFlags::empty());
    }
    made
}
