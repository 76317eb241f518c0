//! A file that nobody sees before it is whole.
#![expect(clippy::disallowed_methods, reason = "this is where the files of a node are written")]

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata, Permissions},
    io::{self, ErrorKind, Write as _},
    os::{
        fd::AsRawFd as _,
        unix::fs::{MetadataExt as _, PermissionsExt as _, fchown},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, XattrFlags},
    io::Errno,
};

/// What is between two names, for a moment, is named after the file and the process and ends with this, by which what is left
/// over is found.
const TEMPORARY: &str = ".gpu-runtime-config.tmp";

/// The label that `SELinux` keeps with a file.
const SELINUX: &str = "security.selinux";

/// The list of who may do what with a file, of which its mode is an extract.
const ACL: &str = "system.posix_acl_access";

/// The longest value that Linux has for an attribute.
const ATTRIBUTE_LIMIT: usize = 64 << 10;

/// A whole file, on disk, that is yet to get its name.
///
/// It has none where the file system allows that: CRI-O reads whatever is in the folder of its drop-ins.
pub(super) struct NewFile {
    file: File,
    /// Where it lies meanwhile, if it could not be made without a name.
    temporary: Option<PathBuf>,
}

impl NewFile {
    /// Writes a file for the place `at`, with mode, owner and attributes of the one that is there, else with `mode`.
    pub(super) fn write(at: &Path, text: &str, mode: u32) -> io::Result<Self> {
        let old = fs::metadata(at).ok();
        let new = Self::empty(at)?;
        new.fill(at, text, old.as_ref(), mode)?;
        Ok(new)
    }

    fn empty(at: &Path) -> io::Result<Self> {
        let folder = at.parent().unwrap_or(Path::new("/"));
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        match rustix::fs::open(folder, flags | OFlags::TMPFILE, mode) {
            Ok(file) => Ok(Self {
                file: file.into(),
                temporary: None,
            }),
            // What file systems say that cannot do it.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let path = temporary(at);
                let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
                Ok(Self {
                    file: file.into(),
                    temporary: Some(path),
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn fill(&self, at: &Path, text: &str, old: Option<&Metadata>, mode: u32) -> io::Result<()> {
        let mut file = &self.file;
        file.write_all(text.as_bytes())?;
        if let Some(old) = old {
            fchown(file, Some(old.uid()), Some(old.gid()))?;
            copy_attributes(at, file)?;
        }
        let mode = old.map_or(mode, |old| old.mode() & 0o7777);
        file.set_permissions(Permissions::from_mode(mode))?; // not subject to the umask
        file.sync_all()
    }

    /// Gives it its name, in place of the file that has it.
    pub(super) fn replace(mut self, at: &Path) -> io::Result<()> {
        let temporary = temporary(at);
        if self.temporary.replace(temporary.clone()).is_none() {
            self.link(&temporary)?;
        }
        fs::rename(&temporary, at).map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => {
                io::Error::other("it is a mount point, and cannot be replaced: mount the folder that it is in")
            }
            _ => error,
        })
    }

    /// Gives it its name, which no other file may have.
    pub(super) fn create(self, at: &Path) -> io::Result<()> {
        match &self.temporary {
            Some(_) => self.replace(at),
            None => self.link(at),
        }
    }

    fn link(&self, at: &Path) -> io::Result<()> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(rustix::fs::linkat(CWD, own, CWD, at, AtFlags::SYMLINK_FOLLOW)?)
    }
}

/// One that did not get its name leaves nothing.
impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(path) = &self.temporary {
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes what a process left behind that was killed while it replaced the file at `at`: under the lock, no other one is
/// replacing it now.
pub(super) fn clean_up(at: &Path) -> io::Result<()> {
    let (Some(folder), Some(name)) = (at.parent(), at.file_name()) else {
        return Ok(());
    };
    let entries = match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if is_temporary(&path) && path.file_name().is_some_and(|other| is_of(other, name)) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn temporary(at: &Path) -> PathBuf {
    let mut path = OsString::from(at);
    path.push(format!(".{}{TEMPORARY}", std::process::id()));
    path.into()
}

/// Whether a temporary name is one of a file of this name: the process's number is all that is between.
fn is_of(temporary: &OsStr, name: &OsStr) -> bool {
    let rest = temporary.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
    let number = rest
        .and_then(|rest| rest.strip_suffix(TEMPORARY.as_bytes()))
        .and_then(|rest| rest.strip_prefix(b"."));
    number.is_some_and(|number| number.iter().all(u8::is_ascii_digit))
}

/// Whether a file is what was left behind by a process that was killed.
pub(super) fn is_temporary(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(TEMPORARY.as_bytes())
}

/// Copies the extended attributes. Only the access list must arrive, and one that the folder gives its new files must not:
/// others would read the file. Of what the kernel keeps for itself, which may be a sum of the content, it is the label alone.
fn copy_attributes(from: &Path, to: &File) -> io::Result<()> {
    match rustix::fs::fremovexattr(to, ACL) {
        Err(error) if !matches!(error, Errno::NODATA | Errno::OPNOTSUPP) => return Err(error.into()),
        _ => {}
    }
    let mut names = vec![0u8; ATTRIBUTE_LIMIT];
    let length = match rustix::fs::listxattr(from, &mut names[..]) {
        Err(Errno::OPNOTSUPP) => return Ok(()),
        length => length?,
    };
    let names = names[..length].split(|byte| *byte == 0);
    let mut value = vec![0u8; ATTRIBUTE_LIMIT];
    for name in
        names.filter(|name| !name.is_empty() && (!name.starts_with(b"security.") || *name == SELINUX.as_bytes()))
    {
        let copied = rustix::fs::getxattr(from, name, &mut value[..])
            .and_then(|length| rustix::fs::fsetxattr(to, name, &value[..length], XattrFlags::empty()));
        match copied {
            Err(error) if name == ACL.as_bytes() => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}
