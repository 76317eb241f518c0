use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::fd::AsRawFd as _,
    path::Path,
};

use rustix::{
    fs::{Mode, OFlags},
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
        fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, unmount,
    },
};

use super::{Container, Error, Host, Report, Result};
use crate::names;

const KEY: &str = "ModifyDeviceFiles: ";

/// The driver's parameters without the permission to make device nodes; `None` if it is not given in the first place.
pub(super) fn changed_params(host: &Host, report: &mut Report) -> Result<Option<String>> {
    let params = match fs::read_to_string(&host.params) {
        Ok(params) => params,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            report.note(format!("no `{}` on the host: nothing to forbid", host.params.display()));
            return Ok(None);
        }
        Err(error) => return Err(Error::io(format!("read `{}`", host.params.display()))(error)),
    };
    let changed = without_modification(&params);
    if changed.is_none() {
        report.note("the driver makes no device nodes: nothing to forbid");
    }
    Ok(changed)
}

fn without_modification(params: &str) -> Option<String> {
    let allowed = format!("{KEY}1");
    params.lines().any(|line| line == allowed).then(|| {
        let lines = params.lines().map(|line| {
            if line == allowed {
                format!("{KEY}0\n")
            } else {
                format!("{line}\n")
            }
        });
        lines.collect()
    })
}

/// Covers the container's view of the parameters with `params`.
pub(super) fn run(container: &Container, params: &str, report: &mut Report) -> Result<()> {
    let path = Path::new(names::PARAMS_PATH);
    match cover(container, path, params) {
        Ok(()) => report.note(format!("`{}` in the container says {KEY}0", path.display())),
        // Without /proc the driver's library finds no permission either.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            report.note(format!("no `{}` in the container: nothing to forbid", path.display()));
        }
        Err(error) => return Err(Error::io(format!("cover the container's `{}`", path.display()))(error)),
    }
    Ok(())
}

/// Mounts a read-only file with `content` over the file at `path`.
///
/// The file is the only one of a file system in memory. A file can be mounted only out of a file system that is mounted
/// somewhere, so that is for a moment the folder of `path`; no trace of it is left in the container. All of this goes by
/// descriptors, so that no path is looked up twice.
fn cover(container: &Container, path: &Path, content: &str) -> io::Result<()> {
    let target = container
        .root
        .open_at(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?;
    let (folder, _) = container.root.parent(path)?;

    let fs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&fs, "size", "1m")?;
    fsconfig_set_string(&fs, "mode", "0755")?;
    fsconfig_create(&fs)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let attributes = attributes | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let scratch = fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&scratch, "params", flags, Mode::from(0o444))?;
    rustix::fs::fchmod(&file, Mode::from(0o444))?;
    File::from(file).write_all(content.as_bytes())?;
    fsconfig_set_flag(&fs, "ro")?;
    fsconfig_reconfigure(&fs)?;

    let both_empty = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&scratch, "", &folder, "", both_empty)?;
    let file = open_tree(
        &scratch,
        "params",
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
    );
    unmount(format!("/proc/self/fd/{}", scratch.as_raw_fd()), UnmountFlags::DETACH)?;
    Ok(move_mount(file?, "", target, "", both_empty)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_permission_is_taken_out() {
        #[track_caller]
        fn check(params: &str, expected: Option<&str>) {
            assert_eq!(without_modification(params).as_deref(), expected);
        }
        let params = "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileMode: 438\n";
        check(
            params,
            Some("ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 0\nDeviceFileMode: 438\n"),
        );
        check("ModifyDeviceFiles: 0\n", None);
        check("DeviceFileMode: 438\n", None);
        check("ModifyDeviceFiles: 10\n", None);
        check("", None);
    }

    #[test]
    fn a_host_without_the_driver_has_nothing_to_forbid() {
        let host = Host {
            params: "/nonexistent/params".into(),
        };
        let mut report = Report::default();
        assert_eq!(changed_params(&host, &mut report).unwrap(), None);
        assert_eq!(
            report.notes,
            ["no `/nonexistent/params` on the host: nothing to forbid"]
        );
    }
}
