//! The file that only one of these programs on a node can hold.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};

/// The file, held. It is removed in the end, as by the vendor's program.
#[derive(Debug)]
pub(super) struct Held {
    file: File,
    path: PathBuf,
}

/// Takes the file, until what is returned is dropped: two of these programs on one node would undo each other's work.
pub(super) fn hold(path: &Path) -> anyhow::Result<Held> {
    check(path)?;
    let make = || {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        File::options().create(true).truncate(false).write(true).open(path)
    };
    loop {
        let file = make().with_context(|| format!("cannot open `{}`", path.display()))?;
        match file.try_lock() {
            // One that ended since the file was opened has removed it: a third would make, and hold, another one.
            Ok(()) if !is_at(&file, path)? => continue,
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("another gpu-toolkit holds `{}`", path.display()),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock `{}`", path.display()));
            }
        }
        fs::write(path, format!("{}\n", std::process::id()))
            .with_context(|| format!("cannot write `{}`", path.display()))?;
        let path = path.to_owned();
        return Ok(Held { file, path });
    }
}

/// Whether a path leads to this file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let id = |status: fs::Metadata| (status.dev(), status.ino());
    match fs::metadata(path) {
        Ok(status) => Ok(id(status) == id(file.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // While it is held nobody else's is at its path. What stands in its place, such as `/dev/null`, stays.
        let is_plain = self.file.metadata().is_ok_and(|status| status.is_file());
        if is_plain && is_at(&self.file, &self.path).unwrap_or(false) {
            // Best effort: one that stays is held by nobody.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether somebody holds it.
///
/// # Errors
/// If nobody can.
pub(super) fn is_held(path: &Path) -> anyhow::Result<bool> {
    check(path)?;
    Ok(File::open(path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))))
}

/// Refuses a pipe: opening it waits for whoever is at its other end.
fn check(path: &Path) -> anyhow::Result<()> {
    let is_pipe = fs::metadata(path).is_ok_and(|status| status.file_type().is_fifo());
    ensure!(!is_pipe, "`{}` is a pipe, which cannot be held", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_on_the_node_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("toolkit/toolkit.pid");
        assert!(!is_held(&path).unwrap());
        let first = hold(&path).unwrap();
        let error = hold(&path).unwrap_err().to_string();
        assert!(error.starts_with("another gpu-toolkit holds"), "{error}");
        assert!(is_held(&path).unwrap());
        drop(first);
        assert!(!is_held(&path).unwrap() && !path.exists());
        let third = hold(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "somebody else's").unwrap();
        drop(third);
        assert_eq!(fs::read_to_string(&path).unwrap(), "somebody else's");
        drop(hold(Path::new("/dev/null")).unwrap());
        assert!(Path::new("/dev/null").exists());
    }
}
