//! `mount-shm`.

use std::{ffi::CString, fs, path::Path};

use anyhow::Context;
use gpu_sharing::mps::{Root, daemon::shared_memory_kib};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};

/// Makes the file system that servers and clients share. One that is there stays, with the size that it should have, since
/// clients hold it.
pub(super) fn mount_at(root: &Root, host_root: &Path) -> anyhow::Result<()> {
    let folder = root.shared_memory();
    let folder_text = folder.display();
    fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder `{folder_text}`"))?;
    let meminfo = fs::read_to_string(host_root.join("proc/meminfo")).unwrap_or_else(|error| {
        tracing::warn!("cannot read how much memory there is: {error}");
        String::new()
    });
    let size = CString::new(format!("size={}k", shared_memory_kib(&meminfo)))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RELATIME;
    let real = folder
        .canonicalize()
        .with_context(|| format!("cannot look at `{folder_text}`"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("cannot read `/proc/self/mountinfo`")?;
    match mounted(&mounts, &real.to_string_lossy()) {
        Some("tmpfs") => {
            mount_remount(&real, flags, &size)
                .with_context(|| format!("cannot resize what is mounted at `{folder_text}`"))?;
            tracing::info!(
                "the shared memory at `{folder_text}` stays, with {}",
                size.to_string_lossy()
            );
            return Ok(());
        }
        Some(other) => {
            tracing::warn!("`{folder_text}` had a file system {other}, which makes way");
            unmount(&real, UnmountFlags::DETACH).with_context(|| format!("cannot unmount `{folder_text}`"))?;
        }
        None => {}
    }
    mount("shm", &real, "tmpfs", flags, Some(size.as_c_str()))
        .with_context(|| format!("cannot mount shared memory at `{folder_text}`"))?;
    tracing::info!("mounted shared memory at `{folder_text}`, {}", size.to_string_lossy());
    Ok(())
}

/// The type of the file system that is mounted last at a path, of `/proc/self/mountinfo`.
fn mounted<'a>(mountinfo: &'a str, path: &str) -> Option<&'a str> {
    let mut at_path = mountinfo.lines().filter(|line| {
        let point = line.split(' ').nth(4).unwrap_or_default();
        point.replace("\\040", " ") == path
    });
    at_path.next_back()?.split_once(" - ")?.1.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_counts() {
        let mounts = "\
36 35 98:0 / /mps rw,noatime shared:1 - ext4 /dev/root rw
37 36 0:30 / /mps/shm rw - ext4 /dev/x rw
38 37 0:31 / /mps/shm rw,nosuid - tmpfs shm rw,size=1k
39 36 0:32 / /a\\040b rw - overlay overlay rw
";
        assert_eq!(mounted(mounts, "/mps/shm"), Some("tmpfs"));
        assert_eq!(mounted(mounts, "/mps"), Some("ext4"));
        assert_eq!(mounted(mounts, "/a b"), Some("overlay"));
        assert_eq!(mounted(mounts, "/mps/sh"), None);
    }
}
