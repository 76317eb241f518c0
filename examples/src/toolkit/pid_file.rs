//! The file that only one of these programs on a node can hold.

use std::{
    fs::{self, File, TryLockError},
    path::Path,
};

use anyhow::{Context as _, bail};

/// Takes the file, until what is returned is dropped: two of these programs on one node would undo each other's work.
pub(super) fn hold(path: &Path) -> anyhow::Result<File> {
    let make = || {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        File::options().create(true).truncate(false).write(true).open(path)
    };
    let file = make().with_context(|| format!("cannot open `{}`", path.display()))?;
    match file.try_lock() {
        Ok(()) => {
            fs::write(path, format!("{}\n", std::process::id()))
                .with_context(|| format!("cannot write `{}`", path.display()))?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => bail!("another gpu-toolkit holds `{}`", path.display()),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("cannot lock `{}`", path.display())),
    }
}

/// Whether somebody holds it.
pub(super) fn is_held(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_one_on_the_node_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("toolkit/toolkit.pid");
        assert!(!is_held(&path));
        let first = hold(&path).unwrap();
        let error = hold(&path).unwrap_err().to_string();
        assert!(error.starts_with("another gpu-toolkit holds"), "{error}");
        assert!(is_held(&path));
        drop(first);
        assert!(!is_held(&path));
        hold(&path).unwrap();
    }
}
