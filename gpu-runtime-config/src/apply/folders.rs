//! The folders that are made for files, and go with them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::{Error, host_path::resolve};

/// The folders of the host that would have to be made for these files, each after the one that it is in.
pub(super) fn missing<'p>(root: &Path, files: impl Iterator<Item = &'p Path>) -> Result<Vec<PathBuf>, Error> {
    let mut folders = BTreeSet::new();
    for file in files {
        let here = resolve(root, file)?;
        let missing = here.ancestors().skip(1).take_while(|folder| !folder.exists());
        let on_host = missing.filter_map(|folder| Some(Path::new("/").join(folder.strip_prefix(root).ok()?)));
        folders.extend(on_host);
    }
    Ok(folders.into_iter().collect())
}

/// Removes those of the folders that hold nothing. One that holds something, or is a mount, stays.
pub(super) fn remove_empty(root: &Path, folders: &[PathBuf]) {
    for folder in folders.iter().rev() {
        if let Ok(folder) = resolve(root, folder) {
            let _ = fs::remove_dir(folder);
        }
    }
}
