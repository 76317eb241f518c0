//! NVIDIA's device nodes.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

mod kernel;

#[cfg(feature = "gpuctl")]
pub(crate) use self::kernel::all;
pub(crate) use self::kernel::control;
#[cfg(any(feature = "mig-manager", feature = "toolkit"))]
pub(crate) use self::kernel::mig;

/// A device that the driver has, whether or not there is a node of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node {
    /// Its path beneath the device root.
    pub(crate) path: String,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    /// Who may open it.
    pub(crate) mode: u32,
}

/// Whether a node is to be made. Something else in its place is an error.
pub(crate) fn is_missing(node: &Node, dev_root: &Path) -> io::Result<bool> {
    let number = makedev(node.major, node.minor);
    match rustix::fs::lstat(here(node, dev_root)) {
        Ok(found) if found.st_rdev == number && FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice => {
            Ok(false)
        }
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is another device")),
        Err(rustix::io::Errno::NOENT) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Makes those of the nodes that are missing. What cannot be made is logged: the driver's own program may do better, and what
/// has no node is left out of CDI files.
#[cfg(any(feature = "mig-manager", feature = "toolkit"))]
pub(crate) fn make(nodes: &[Node], dev_root: &Path) {
    for node in nodes {
        let path = here(node, dev_root);
        match create(node, dev_root) {
            Ok(true) => tracing::info!("made `{}`", path.display()),
            Ok(false) => {}
            Err(error) => tracing::warn!("cannot make `{}`: {error}", path.display()),
        }
    }
}

/// Makes a node that is missing; whether it was. One of that path which is another device is an error.
pub(crate) fn create(node: &Node, dev_root: &Path) -> io::Result<bool> {
    if !is_missing(node, dev_root)? {
        return Ok(false);
    }
    let path = here(node, dev_root);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mode = Mode::from_raw_mode(node.mode);
    let number = makedev(node.major, node.minor);
    mknodat(CWD, &path, FileType::CharacterDevice, mode, number)?;
    rustix::fs::chmod(&path, mode)?; // the umask took its share
    Ok(true)
}

/// The path of a node from here.
pub(crate) fn here(node: &Node, dev_root: &Path) -> PathBuf {
    dev_root.join(node.path.trim_start_matches('/'))
}

#[cfg(all(test, feature = "gpuctl"))]
mod tests {
    use super::*;

    #[test]
    fn another_device_in_the_place_of_a_node_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("dev")).unwrap();
        fs::write(root.path().join("dev/nvidiactl"), "").unwrap();
        let node = Node {
            path: "/dev/nvidiactl".to_owned(),
            major: 195,
            minor: 255,
            mode: 0o666,
        };
        for refused in [create(&node, root.path()), is_missing(&node, root.path())] {
            assert_eq!(refused.unwrap_err().to_string(), "it is another device");
        }
    }
}
