//! Where the host's files are.

use std::{fs, path::Path};

use anyhow::{Context as _, ensure};

/// Refuses a host's root that is no folder: what is read beneath it would all be missing, and what is written be nowhere.
pub(crate) fn check(path: &Path) -> anyhow::Result<()> {
    check_folder("host's root", path)
}

/// The same of another root.
pub(crate) fn check_folder(what: &str, path: &Path) -> anyhow::Result<()> {
    let what = || format!("the {what} `{}`", path.display());
    let status = fs::metadata(path).with_context(|| format!("cannot find {}", what()))?;
    ensure!(status.is_dir(), "{} is no folder", what());
    Ok(())
}
