//! The runtime behind this one.

use std::{
    env, fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::PathBuf,
};

use anyhow::Context as _;

use crate::names;

/// The calls that may lead to one another: more than one where a hook has an engine make a container.
pub(super) const DEEPEST: u32 = 8;

/// How many calls of this program led to this one.
pub(super) fn depth() -> u32 {
    let depth = env::var(names::RUNTIME_DEPTH).ok();
    depth.and_then(|depth| depth.parse().ok()).unwrap_or_default()
}

/// The first of the low-level runtimes that exists, and is not this program under another name. A copy of it, or a script
/// that calls it, is not told apart.
pub(super) fn find(names: &[String]) -> anyhow::Result<PathBuf> {
    let own = fs::metadata("/proc/self/exe")
        .ok()
        .map(|status| (status.dev(), status.ino()));
    let usable = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|status| {
            status.is_file() && status.permissions().mode() & 0o111 != 0 && own != Some((status.dev(), status.ino()))
        })
    };
    let path = env::var_os("PATH").filter(|path| !path.is_empty());
    let path = path.unwrap_or_else(|| "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into());
    let places = |name: &String| -> Vec<PathBuf> {
        if name.contains('/') {
            return vec![name.into()];
        }
        env::split_paths(&path).map(|folder| folder.join(name)).collect()
    };
    let mut found = names.iter().flat_map(places).filter(|path| path.is_absolute());
    found
        .find(usable)
        .with_context(|| format!("none of the low-level runtimes {} is installed", names.join(", ")))
}
