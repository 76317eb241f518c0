//! Seeing that a file is another: a kubelet that was restarted has other sockets.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

/// What tells a file from one that took its path later, or from what it was before it was changed. The inode alone is used again at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    changed_s: i64,
    changed_ns: i64,
}

impl Identity {
    /// `None` where there is no such file, or it cannot be looked at.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = fs::symlink_metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            changed_s: metadata.ctime(),
            changed_ns: metadata.ctime_nsec(),
        })
    }
}
