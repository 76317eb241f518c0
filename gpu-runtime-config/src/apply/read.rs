//! Reading the files that a plan is made from.
#![expect(clippy::disallowed_methods, reason = "this is where the files of a node are read")]

use std::{
    collections::VecDeque,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use super::{Error, disk, host_path::resolve, new_file};
use crate::{containerd, crio, error::Error as ConfigError, plan::Snapshot, receipt::Receipt};

/// What the names of receipts end with; no engine imports such files.
pub(super) const RECEIPT_EXTENSION: &str = "gpu-runtime-config";

/// Where the receipt for a main file is kept: beside it, so that whoever has the file has the receipt.
pub fn receipt_path(main: &Path) -> PathBuf {
    let mut name = main.as_os_str().to_owned();
    name.push(".");
    name.push(RECEIPT_EXTENSION);
    PathBuf::from(name)
}

/// A file of the host as it is.
///
/// # Errors
/// [`Error::Io`] if it cannot be read; not if there is none.
pub fn read_file(host_root: &Path, path: &Path) -> Result<Snapshot, Error> {
    Ok(Snapshot {
        path: path.to_owned(),
        text: disk::read(host_root, path)?,
    })
}

/// The kept receipt for a main file, `None` if there is none.
///
/// # Errors
/// [`Error::Io`] if it cannot be read, [`Error::Config`] if it is not a receipt.
pub fn read_receipt(host_root: &Path, main: &Path) -> Result<Option<Receipt>, Error> {
    let path = receipt_path(main);
    let receipt = disk::read(host_root, &path)?.map(|text| Receipt::from_json(&text));
    receipt.transpose().map_err(|error| match error {
        ConfigError::Receipt { reason } => {
            let reason = format!("`{}`: {reason}", path.display());
            ConfigError::Receipt { reason }.into()
        }
        error => error.into(),
    })
}

/// The files of a containerd: the main file, all that it imports in the order in which they are merged, and the drop-in.
///
/// # Errors
/// [`Error::Io`] if a file cannot be read, [`Error::Config`] if one cannot be understood. An imported file that does not
/// exist is left out: it is containerd that complains about it.
pub fn read_containerd(
    host_root: &Path,
    main: &Path,
    drop_in: &Path,
    receipt: Option<&Receipt>,
) -> Result<containerd::Files, Error> {
    check_drop_in(host_root, drop_in, main)?;
    let main = read_file(host_root, main)?;
    let mut imported: Vec<Snapshot> = Vec::new();
    let mut pending = VecDeque::from([main.clone()]);
    while let Some(file) = pending.pop_front() {
        let text = file.text.as_deref().unwrap_or_default();
        for pattern in containerd::imports(&file.path, text)? {
            for path in matches(host_root, &pattern)? {
                let known = path == main.path || imported.iter().any(|other| other.path == path);
                if known {
                    continue;
                }
                let file = read_file(host_root, &path)?;
                if file.text.is_some() {
                    pending.push_back(file.clone());
                    imported.push(file);
                }
            }
        }
    }
    let drop_in = read_file(host_root, drop_in)?;
    let mut known: Vec<&Path> = vec![&main.path, &drop_in.path];
    known.extend(imported.iter().map(|file| file.path.as_path()));
    let other = others(host_root, receipt, &known)?;
    Ok(containerd::Files {
        main,
        drop_in,
        imported,
        other,
    })
}

/// The files of a CRI-O: the main file, and those of the drop-in's folder in alphabetical order.
///
/// # Errors
/// [`Error::Io`] if a file cannot be read.
pub fn read_crio(
    host_root: &Path,
    main: &Path,
    drop_in: &Path,
    receipt: Option<&Receipt>,
) -> Result<crio::Files, Error> {
    check_drop_in(host_root, drop_in, main)?;
    let main = read_file(host_root, main)?;
    let folder = drop_in.parent().unwrap_or(Path::new("/"));
    let mut dropped_in = Vec::new();
    for path in matches(host_root, &folder.join("*"))? {
        // CRI-O goes into sub-folders too, which nobody uses: its own documentation knows files only.
        if !new_file::is_temporary(&path) && resolve(host_root, &path)?.is_file() {
            dropped_in.push(read_file(host_root, &path)?);
        }
    }
    let drop_in = read_file(host_root, drop_in)?;
    let mut known: Vec<&Path> = vec![&main.path, &drop_in.path];
    known.extend(dropped_in.iter().map(|file| file.path.as_path()));
    let other = others(host_root, receipt, &known)?;
    Ok(crio::Files {
        main,
        drop_in,
        dropped_in,
        other,
    })
}

/// Refuses a drop-in that is the main file by some link, or its receipt; what its path says is looked at where the plan is made.
fn check_drop_in(host_root: &Path, drop_in: &Path, main: &Path) -> Result<(), Error> {
    let here = resolve(host_root, drop_in)?;
    if here == resolve(host_root, main)? {
        return Err(ConfigError::main_as_drop_in(drop_in).into());
    }
    if here != resolve(host_root, &receipt_path(main))? {
        return Ok(());
    }
    let (path, reason) = (drop_in.to_owned(), "it is the receipt of the main file");
    Err(ConfigError::NoDropIn { path, reason }.into())
}

/// The files that a receipt names and that have not been read yet.
fn others(host_root: &Path, receipt: Option<&Receipt>, known: &[&Path]) -> Result<Vec<Snapshot>, Error> {
    let paths = receipt
        .into_iter()
        .flat_map(Receipt::paths)
        .filter(|path| !known.contains(path));
    paths.map(|path| read_file(host_root, path)).collect()
}

/// The host's files that an import means, in alphabetical order.
fn matches(host_root: &Path, pattern: &Path) -> Result<Vec<PathBuf>, Error> {
    if !pattern.to_string_lossy().contains('*') {
        return Ok(vec![pattern.to_owned()]);
    }
    let mut found = vec![PathBuf::from("/")];
    for component in pattern
        .components()
        .filter(|component| matches!(component, std::path::Component::Normal(_)))
    {
        let name = component.as_os_str();
        let is_pattern = name.to_string_lossy().contains(['*', '?', '[', '\\']);
        let mut deeper = Vec::new();
        for folder in found {
            if !is_pattern {
                deeper.push(folder.join(name));
                continue;
            }
            for entry in list(host_root, &folder)? {
                if containerd::name_matches(name, &entry) {
                    deeper.push(folder.join(entry));
                }
            }
        }
        found = deeper;
    }
    found.sort();
    let exists = |path: &PathBuf| resolve(host_root, path).is_ok_and(|path| path.exists());
    found.retain(exists);
    Ok(found)
}

fn list(host_root: &Path, folder: &Path) -> Result<Vec<std::ffi::OsString>, Error> {
    let entries = match fs::read_dir(resolve(host_root, folder)?) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(vec![]),
        Err(error) => return Err(Error::io("list", folder)(error)),
    };
    entries
        .map(|entry| Ok(entry.map_err(Error::io("list", folder))?.file_name()))
        .collect()
}
