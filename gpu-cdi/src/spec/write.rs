use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Write as _},
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::fs::DirBuilderExt as _,
    },
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags},
    io::Errno,
};

use super::{Format, Spec};
use crate::{Error, Result};

impl Spec {
    /// Checks this spec and puts it in place of the file at `path`, whole or not at all.
    ///
    /// A reader sees the old file or the new one and never a part, also after a crash: the text goes to a temporary file
    /// in the same folder, which has its final mode (`0644`: rootless runtimes read it too) from the start, is synced
    /// and then renamed. The folder is made (`0755`) if it is missing. The extension picks the notation.
    ///
    /// The version is left as it is: [`Spec::new`] sets the least one, and one that is too low for what the spec uses is
    /// [`Error::Invalid`].
    ///
    /// A spec names programs that run as root. So one is written only to a folder that root or this process's user owns
    /// and nobody else may write to; the folders above it are not looked at.
    ///
    /// # Errors
    /// [`Error::Invalid`] and [`Error::Extension`] before anything is touched; [`Error::CreateDir`],
    /// [`Error::UnsafeDir`] and [`Error::Write`] with the old file as it was and no temporary file left;
    /// [`Error::NotSynced`] with the new file in place.
    pub fn write(&self, path: &Path) -> Result<()> {
        self.validate()?;
        let format = Format::of(path).ok_or_else(|| Error::Extension { path: path.to_owned() })?;
        let text = self.to_text(format)?;
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(dir)
            .map_err(|source| Error::CreateDir {
                path: dir.to_owned(),
                source,
            })?;
        // From here on by the descriptor: it is this folder that was looked at.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, dir, flags, Mode::empty()).map_err(failed(path))?;
        check(&folder, dir, path)?;
        put(folder.as_fd(), path, text.as_bytes())
    }
}

/// Checks that nobody but root and this process's user may change what is in a folder.
fn check(folder: &OwnedFd, dir: &Path, path: &Path) -> Result<()> {
    let stat = rustix::fs::fstat(folder).map_err(failed(path))?;
    let trusted = stat.st_uid == 0 || stat.st_uid == rustix::process::geteuid().as_raw();
    if trusted && stat.st_mode & 0o022 == 0 {
        return Ok(());
    }
    Err(Error::UnsafeDir {
        path: dir.to_owned(),
        owner: stat.st_uid,
        mode: stat.st_mode & 0o7777,
    })
}

fn failed<E: Into<io::Error>>(path: &Path) -> impl Fn(E) -> Error {
    move |source| Error::Write {
        path: path.to_owned(),
        source: source.into(),
    }
}

fn put(folder: BorrowedFd<'_>, path: &Path, text: &[u8]) -> Result<()> {
    replace(folder, path.file_name().unwrap_or_default(), text).map_err(failed(path))?;
    rustix::fs::fsync(folder).map_err(|error| Error::NotSynced {
        path: path.to_owned(),
        source: error.into(),
    })
}

/// Tells apart the temporary files of two threads that write at once.
static COUNT: AtomicU64 = AtomicU64::new(0);

fn replace(folder: BorrowedFd<'_>, name: &OsStr, text: &[u8]) -> io::Result<()> {
    // Neither `.json` nor `.yaml` at its end: no reader takes it for a spec.
    let mut temporary = OsString::from(".");
    temporary.push(name);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    temporary.push(format!(".{}.{count}.tmp", std::process::id()));

    let written =
        fill(folder, &temporary, text).and_then(|()| Ok(rustix::fs::renameat(folder, &temporary, folder, name)?));
    if written.is_err() {
        // Best effort: the first error is the one to report.
        let _ = rustix::fs::unlinkat(folder, &temporary, AtFlags::empty());
    }
    written
}

fn fill(folder: BorrowedFd<'_>, temporary: &OsStr, text: &[u8]) -> io::Result<()> {
    // A process with this id may have died here earlier.
    match rustix::fs::unlinkat(folder, temporary, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let mode = Mode::from(0o644);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(folder, temporary, flags, mode)?);
    // The process's umask took its share at creation.
    rustix::fs::fchmod(&file, mode)?;
    file.write_all(text)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_synced_is_an_error_with_the_new_file_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nvidia.json");
        fs::write(&path, "old").unwrap();
        // A descriptor of this sort leads to files and can itself not be synced.
        let folder = rustix::fs::openat(CWD, dir.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let error = put(folder.as_fd(), &path, b"new").unwrap_err();
        assert!(matches!(error, Error::NotSynced { .. }), "{error:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }
}
