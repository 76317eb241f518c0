//! Files that are written whole or not at all.
#![expect(clippy::disallowed_methods, reason = "this is where the files of a node are written")]

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Component, Path, PathBuf},
};

use super::Error;
use crate::plan::FileChange;

/// The label that `SELinux` keeps with a file.
const SELINUX: &str = "security.selinux";

/// Makes all changes, or none: what was written before a failure gets its bytes back.
pub(super) fn write_all(root: &Path, changes: &[FileChange]) -> Result<(), Error> {
    for change in changes {
        if read(root, &change.path)? != change.before {
            return Err(Error::Changed {
                path: change.path.clone(),
            });
        }
    }
    for (index, change) in changes.iter().enumerate() {
        if let Err(error) = write(root, &change.path, change.after.as_deref()) {
            for done in changes[..index].iter().rev() {
                // The first error tells what is wrong; one more on the way back would only hide it.
                let _ = write(root, &done.path, done.before.as_deref());
            }
            return Err(error);
        }
    }
    Ok(())
}

/// A file's text, `None` if there is none.
pub(super) fn read(root: &Path, path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(resolve(root, path)?) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(Error::io("read", path)(error)),
    }
}

fn write(root: &Path, path: &Path, text: Option<&str>) -> Result<(), Error> {
    let file = resolve(root, path)?;
    let directory = file.parent().unwrap_or(root).to_owned();
    match text {
        Some(text) => replace(&file, &directory, text, path),
        None => fs::remove_file(&file).map_err(Error::io("remove", path)),
    }?;
    File::open(&directory)
        .and_then(|directory| directory.sync_all())
        .map_err(Error::io("flush", path))
}

/// Puts a text in place of a file by renaming, with the old file's mode, owner and `SELinux` label.
fn replace(file: &Path, directory: &Path, text: &str, path: &Path) -> Result<(), Error> {
    fs::create_dir_all(directory).map_err(Error::io("make the folder of", path))?;
    let old = fs::metadata(file).ok();
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = directory.join(name);
    let result = write_new(
        &temporary,
        text,
        old.as_ref().map_or(new_mode(path), |old| old.mode() & 0o7777),
    )
    .and_then(|new| {
        if let Some(old) = &old {
            std::os::unix::fs::fchown(&new, Some(old.uid()), Some(old.gid()))?;
            copy_label(file, &new);
        }
        new.sync_all()
    })
    .and_then(|()| fs::rename(&temporary, file));
    if result.is_err() {
        // Best effort: the error that matters is the one above.
        let _ = fs::remove_file(&temporary);
    }
    result.map_err(Error::io("write", path))
}

fn write_new(path: &Path, text: &str, mode: u32) -> std::io::Result<File> {
    // What an earlier process of this id left behind is nobody's.
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(fs::Permissions::from_mode(mode))?; // not subject to the umask
    Ok(file)
}

/// Configuration is for all to read; a receipt holds whole files, which may have secrets.
fn new_mode(path: &Path) -> u32 {
    if path
        .extension()
        .is_some_and(|extension| extension == super::read::RECEIPT_EXTENSION)
    {
        0o600
    } else {
        0o644
    }
}

/// Copies the label; where there is no `SELinux` there is none, and a policy that forbids it gives its own.
fn copy_label(from: &Path, to: &File) {
    let mut label = [0u8; 1024];
    if let Ok(length) = rustix::fs::getxattr(from, SELINUX, &mut label[..]) {
        let _ = rustix::fs::fsetxattr(to, SELINUX, &label[..length], rustix::fs::XattrFlags::empty());
    }
}

/// Where a path of the host is from here. Symbolic links are followed as on the host: below the root, never out of it.
///
/// `/var/run` is a link to `/run` on most hosts, which would otherwise lead to the `/run` of a container.
pub(super) fn resolve(root: &Path, path: &Path) -> Result<PathBuf, Error> {
    let mut here = Vec::new();
    let mut rest: Vec<OsString> = names(path).rev().collect();
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            here.pop();
            continue;
        }
        here.push(name);
        let Ok(target) = fs::read_link(root.join(here.iter().collect::<PathBuf>())) else {
            continue;
        };
        links += 1;
        if links > 40 {
            return Err(Error::io("follow the links of", path)(ErrorKind::InvalidInput.into()));
        }
        if target.is_absolute() {
            here.clear();
        } else {
            here.pop();
        }
        rest.extend(names(&target).rev());
    }
    Ok(root.join(here.iter().collect::<PathBuf>()))
}

/// The names of a path, `..` among them.
fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}
