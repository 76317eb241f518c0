//! Paths of a host that is mounted somewhere.

use std::{
    ffi::OsString,
    fs,
    io::ErrorKind,
    path::{Component, Path, PathBuf},
};

use super::Error;

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
