use std::{
    ffi::CString,
    fs::{File, OpenOptions},
    io::{self, Seek as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

use object::read::ReadCache;
use rustix::{
    fs::{MemfdFlags, OFlags, SealFlags},
    io::Errno,
};

use super::{Error, Result};
use crate::elf;

/// A copy of the host's `ldconfig` that nothing can change any more.
#[derive(Debug)]
pub(super) struct Ldconfig {
    program: OwnedFd,
}

impl Ldconfig {
    /// Copies the program at `path` of the host.
    ///
    /// It has to be absolute, root's alone to change, and static: one with a loader would have the kernel start the
    /// container's (CVE-2024-0136 and its kin). Where there is a `<path>.real`, that one is taken: Ubuntu's `ldconfig` is
    /// a script that calls it. A `@` in front, which marks the host's in the vendor's configuration, is dropped.
    pub(super) fn copy(path: &Path) -> Result<Self> {
        let text = path.to_string_lossy();
        let path = PathBuf::from(text.strip_prefix('@').unwrap_or(&text));
        let refuse = |path: &Path, reason: &str| Error::Ldconfig {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        if !path.is_absolute() {
            return Err(refuse(&path, "it is not an absolute path of the host"));
        }
        let mut real = path.clone().into_os_string();
        real.push(".real");
        let real = PathBuf::from(real);
        let path = if real.exists() { real } else { path };

        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default())
            .open(&path)
            .map_err(|error| refuse(&path, &error.to_string()))?;
        let metadata = file.metadata().map_err(|error| refuse(&path, &error.to_string()))?;
        if !metadata.is_file() || metadata.uid() != 0 || metadata.mode() & 0o022 != 0 {
            return Err(refuse(&path, "others than root may change it, or it is no file"));
        }
        let mut copy = File::from(memory_file().map_err(Error::io("make a file in memory"))?);
        io::copy(&mut file, &mut copy)
            .and_then(|_| copy.rewind())
            .map_err(Error::io(format!("copy `{}`", path.display())))?;
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&copy, seals).map_err(Error::io("seal a file in memory"))?;
        // The copy is looked at, not the file, which may have changed since.
        let cache = ReadCache::new(copy);
        match elf::has_interpreter(&cache) {
            Ok(false) => Ok(Self {
                program: cache.into_inner().into(),
            }),
            Ok(true) => Err(refuse(
                &path,
                "it is not static: it would be started by the container's loader",
            )),
            Err(reason) => Err(refuse(&path, &reason)),
        }
    }

    /// Becomes this program, with an empty environment; returns only why it could not.
    pub(super) fn become_it(&self) -> Error {
        let arguments = ["ldconfig", "-f", super::ld_so_conf::FILE, "-C", "/etc/ld.so.cache"];
        let arguments = arguments.map(|argument| CString::new(argument).expect("no NUL in it"));
        let source = super::isolation::execute(self.program.as_fd(), &arguments);
        Error::io("run ldconfig")(source)
    }
}

fn memory_file() -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create("ldconfig", flags | MemfdFlags::EXEC) {
        // Before Linux 6.3, where such files could always be run.
        Err(Errno::INVAL) => rustix::fs::memfd_create("ldconfig", flags),
        answer => answer,
    }
}
