use std::{
    io,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};

use super::{Container, Error, Report, Result};

/// Sets the mode of what is there of `paths`.
pub(super) fn run(container: &Container, mode: u32, paths: &[PathBuf], report: &mut Report) -> Result<()> {
    for path in paths {
        match set(container, mode, path) {
            Ok(()) => report.note(format!("mode {mode:o} of `{}`", path.display())),
            // A whole /dev of the host may be mounted there without the right to change it.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
                report.note(format!("left `{}` as it is: {error}", path.display()));
            }
            Err(error) => {
                let action = format!("set the mode of `{}` in the container", path.display());
                return Err(Error::io(action)(error));
            }
        }
    }
    Ok(())
}

fn set(container: &Container, mode: u32, path: &Path) -> io::Result<()> {
    let file = container.root.open_at(path, OFlags::PATH, Mode::empty())?;
    // The call by descriptor does not take one that was opened without reading, and reading could wake a device.
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::chmod(itself, Mode::from(mode))?)
}
