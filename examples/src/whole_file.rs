//! Files that are there whole or not at all.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::Path,
};

/// What the name of one that is yet to be whole ends with, after the file's name and the process's number.
const TEMPORARY: &str = ".gpu.tmp";

/// A file that is to take the place of another, or to be the first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct New {
    pub(crate) mode: u32,
    /// User and group, if not this process's.
    pub(crate) owner: Option<(u32, u32)>,
    /// Whether it must still be there after a crash.
    pub(crate) lasting: bool,
}

impl New {
    /// Puts the file in place; the one that was there stays if that fails.
    pub(crate) fn put(self, path: &Path, content: &mut dyn Read) -> io::Result<()> {
        let mut temporary = OsString::from(path);
        temporary.push(format!(".{}{TEMPORARY}", std::process::id()));
        let temporary = Path::new(&temporary);
        let put = self.fill(temporary, content).and_then(|()| fs::rename(temporary, path));
        if put.is_err() {
            // Best effort: the first error is the one to report.
            let _ = fs::remove_file(temporary);
        }
        put?;
        match path.parent() {
            Some(folder) if self.lasting => File::open(folder)?.sync_all(),
            _ => Ok(()),
        }
    }

    fn fill(self, temporary: &Path, content: &mut dyn Read) -> io::Result<()> {
        // What an earlier process of this number left when it was killed.
        match fs::remove_file(temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(temporary)?;
        if let Some((user, group)) = self.owner {
            fchown(&file, Some(user), Some(group))?;
        }
        file.set_permissions(fs::Permissions::from_mode(self.mode))?; // not subject to the umask
        io::copy(content, &mut file)?;
        if self.lasting { file.sync_all() } else { Ok(()) }
    }
}

/// Removes what processes that were killed left of a file, which nobody else may be putting in place now.
#[cfg(feature = "toolkit")]
pub(crate) fn clean_up(path: &Path) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(());
    };
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if is_left_of(name, &entry.file_name()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(feature = "toolkit")]
fn is_left_of(name: &std::ffi::OsStr, other: &std::ffi::OsStr) -> bool {
    let rest = other.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
    let rest = rest.and_then(|rest| rest.strip_suffix(TEMPORARY.as_bytes()));
    rest.is_some_and(|rest| matches!(rest, [b'.', number @ ..] if number.iter().all(u8::is_ascii_digit)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_file_has_its_mode_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let new = New {
            mode: 0o751,
            owner: None,
            lasting: true,
        };
        new.put(&path, &mut &b"first"[..]).unwrap();
        new.put(&path, &mut &b"second"[..]).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o751);
        fs::create_dir(folder.path().join("folder")).unwrap();
        assert!(new.put(&folder.path().join("folder"), &mut &b""[..]).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
