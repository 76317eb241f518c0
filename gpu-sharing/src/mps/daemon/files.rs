//! The files and folders of an MPS root.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use super::{super::names::CONTAINER_LABEL, Error, Result};

/// Makes a folder for everyone to enter, with those above it.
pub(super) fn folder(path: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
    made.map_err(Error::file("make", path))
}

/// Replaces a file as a whole. Whoever opens it finds a lock on it, as long as the value lives.
pub(super) fn replace(path: &Path, text: &str) -> Result<File> {
    let new = with_suffix(path, ".new");
    let written = || -> io::Result<File> {
        let mut file = File::create(&new)?;
        file.lock()?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, path)?;
        Ok(file)
    };
    written().map_err(Error::file("write", path))
}

/// Removes a file; that there is none is fine.
pub(super) fn remove(path: &Path) -> Result<()> {
    gone(fs::remove_file(path)).map_err(Error::file("remove", path))
}

/// Removes a folder with all that is in it; that there is none is fine.
pub(super) fn remove_folder(path: &Path) -> Result<()> {
    gone(fs::remove_dir_all(path)).map_err(Error::file("remove", path))
}

/// Lets unprivileged containers use a folder and what is in it, where `SELinux` is in force.
pub(super) fn label_for_containers(path: &Path, host_selinux: &Path) -> Result<()> {
    if !host_selinux.exists() {
        return Ok(());
    }
    let label = |path: &Path| {
        let (name, value) = ("security.selinux", CONTAINER_LABEL.as_bytes());
        rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty())
            .map_err(|error| Error::file("label", path)(error.into()))
    };
    label(path)?;
    let entries = fs::read_dir(path).map_err(Error::file("read", path))?;
    for entry in entries {
        label(&entry.map_err(Error::file("read", path))?.path())?;
    }
    Ok(())
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
