//! The file tree of a node: what the driver, the kernel and the distribution leave there.

mod capabilities;
mod dev;
mod driver_root;
mod proc;
mod socket;
mod sys;

pub(crate) use self::{
    dev::{CAPABILITIES, CONTROL, NVIDIA},
    driver_root::library_folder,
    proc::{compute_instance, gpu_instance, irq},
    socket::show_service,
};

use std::{
    fs, io,
    os::unix::{fs::PermissionsExt as _, fs::symlink},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::{Error, GpuEntry, NodeFile, Result, state::Record};

/// Writes the tree; `library` writes the node's copy of the simulated library to a path.
pub(crate) fn write(
    root: &Path,
    node: &NodeFile,
    nvidia_smi: Option<&Path>,
    library: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let tree = Tree { root };
    for folder in ["", "etc", "run", "usr/bin"] {
        tree.folder(folder)?;
    }
    dev::write(&tree, node)?;
    proc::write(&tree, node)?;
    sys::write(&tree, node)?;
    for place in 0..node.gpus.len() {
        put_in(&tree, node, place)?;
    }
    driver_root::write(&tree, node, nvidia_smi, library)
}

/// Brings the tree to what is true now: which GPUs are on the bus, and how they are partitioned.
///
/// Device nodes stay: what made them (`nvidia-modprobe`, the container toolkit) does not take them back.
pub(crate) fn show(root: &Path, node: &NodeFile, record: &Record) -> Result<()> {
    let tree = Tree { root };
    for (place, gpu) in node.gpus.iter().enumerate() {
        match (is_there(gpu, record), root.join(proc::folder(gpu)).exists()) {
            (true, false) => put_in(&tree, node, place)?,
            (false, true) => take_out(&tree, gpu, place)?,
            _ => {}
        }
    }
    capabilities::show_mig(root, node, record)
}

fn is_there(gpu: &GpuEntry, record: &Record) -> bool {
    !record.gpu(&gpu.uuid).unplugged
}

/// What kernel and driver show of a GPU, the file last by which it is seen that all is there.
fn put_in(tree: &Tree<'_>, node: &NodeFile, place: usize) -> Result<()> {
    if let Some(gpu) = node.gpus.get(place) {
        sys::put_in(tree, gpu, place)?;
        proc::put_in(tree, gpu, &node.driver)?;
    }
    Ok(())
}

fn take_out(tree: &Tree<'_>, gpu: &GpuEntry, place: usize) -> Result<()> {
    for path in sys::paths(gpu, place).into_iter().chain(proc::paths(gpu)) {
        tree.remove(&path)?;
    }
    Ok(())
}

/// Puts the files of another driver version, the one that `node` names now, in the place of those of `old`.
pub(crate) fn change_driver(
    root: &Path,
    node: &NodeFile,
    record: &Record,
    old: &str,
    library: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    change_kernel_driver(root, node, record)?;
    driver_root::change(&Tree { root }, node, old, library)
}

/// The same for what the kernel shows of the driver.
pub(crate) fn change_kernel_driver(root: &Path, node: &NodeFile, record: &Record) -> Result<()> {
    let tree = Tree { root };
    proc::write(&tree, node)?;
    sys::write(&tree, node)?;
    let there = node.gpus.iter().enumerate().filter(|(_, gpu)| is_there(gpu, record));
    there
        .map(|(place, _)| place)
        .try_for_each(|place| put_in(&tree, node, place))
}

/// Removes a file; that it is absent is fine.
pub(crate) fn absent(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Writes files beneath one folder. What is there already is replaced. Paths are relative to it; the folders they lie in are made.
struct Tree<'a> {
    root: &'a Path,
}

impl Tree<'_> {
    fn path(&self, path: &str) -> Result<PathBuf> {
        let path = self.root.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(Error::write(parent))?;
        }
        Ok(path)
    }

    fn folder(&self, path: &str) -> Result<()> {
        let path = self.root.join(path);
        fs::create_dir_all(&path).map_err(Error::write(path))
    }

    /// Removes a folder, or a link; that it is absent is fine.
    fn remove(&self, path: &str) -> Result<()> {
        let path = self.root.join(path);
        let removed = match path.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(&path),
            Ok(_) => fs::remove_file(&path),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done.map_err(Error::write(&path)),
        }
    }

    fn file(&self, path: &str, mode: u32, content: impl AsRef<[u8]>) -> Result<()> {
        let path = self.path(path)?;
        let write = || {
            absent(&path)?; // one who is not root may not write to it
            fs::write(&path, content)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))
        };
        write().map_err(Error::write(&path))
    }

    fn link(&self, path: &str, target: &str) -> Result<()> {
        let path = self.path(path)?;
        let link = || {
            absent(&path)?;
            symlink(target, &path)
        };
        link().map_err(Error::write(&path))
    }

    /// A character device where this process may make one, else a regular file with the same permissions.
    fn device(&self, path: &str, major: u32, minor: u32, mode: u32) -> Result<()> {
        let full = self.path(path)?;
        let made = mknodat(
            CWD,
            &full,
            FileType::CharacterDevice,
            Mode::RUSR | Mode::WUSR,
            makedev(major, minor),
        );
        if made.is_err() {
            return self.file(path, mode, "");
        }
        fs::set_permissions(&full, fs::Permissions::from_mode(mode)).map_err(Error::write(full))
    }
}
