//! Files that are read within bounds, and written whole or not at all.
#![expect(
    clippy::disallowed_methods,
    reason = "this is where the files of a node are read and written"
)]

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Read as _},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};

use super::{
    Error,
    host_path::resolve,
    new_file::{self, NewFile},
};
use crate::{
    error::{Error as ConfigError, Position},
    plan::FileChange,
};

/// Most bytes of a file: more than any configuration has.
const LIMIT: u64 = 16 << 20;

/// Makes all changes, or none: what was written before a failure gets its bytes back.
pub(super) fn write_all(root: &Path, changes: &[FileChange]) -> Result<(), Error> {
    write_and_flush(root, changes, &flush)
}

/// The same, with folders flushed by `flush`.
pub(super) fn write_and_flush(
    root: &Path,
    changes: &[FileChange],
    flush: &impl Fn(&Path) -> io::Result<()>,
) -> Result<(), Error> {
    for change in changes {
        check(root, &change.path, change.before.as_deref())?;
        if change.after.as_ref().is_some_and(|text| text.len() as u64 > LIMIT) {
            // Nobody could read it again.
            return Err(Error::io("write", &change.path)(too_long()));
        }
    }
    let ready = changes.iter().map(|change| Ready::make(root, change));
    let ready = ready.collect::<Result<Vec<_>, _>>()?;
    for (index, ready) in ready.into_iter().enumerate() {
        if let Err(error) = ready.put(flush) {
            // The one that failed may have its name already; one that has not is not as it would be, and left alone.
            for done in changes[..=index].iter().rev() {
                // The first error tells what is wrong; one more on the way back would only hide it.
                let _ = Ready::make(root, &done.inverse()).and_then(|back| back.put(flush));
            }
            return Err(error);
        }
    }
    Ok(())
}

/// A change for which all is on disk: what is left of it needs no space.
pub(super) struct Ready<'r> {
    root: &'r Path,
    change: FileChange,
    file: PathBuf,
    new: Option<NewFile>,
}

impl<'r> Ready<'r> {
    /// Nothing that anybody reads changes by this.
    pub(super) fn make(root: &'r Path, change: &FileChange) -> Result<Self, Error> {
        let path = change.path.as_path();
        let file = resolve(root, path)?;
        let new = change.after.as_ref().map(|text| {
            let folder = file.parent().unwrap_or(root);
            fs::create_dir_all(folder).map_err(Error::io("make the folder of", path))?;
            NewFile::write(&file, text, new_mode(path)).map_err(Error::io("write", path))
        });
        Ok(Self {
            root,
            change: change.clone(),
            new: new.transpose()?,
            file,
        })
    }

    /// Makes the change.
    pub(super) fn make_so(self) -> Result<(), Error> {
        self.put(&flush)
    }

    fn put(self, flush: &impl Fn(&Path) -> io::Result<()>) -> Result<(), Error> {
        let (root, file, before) = (self.root, self.file, self.change.before.as_deref());
        let path = self.change.path.as_path();
        // As late as can be: whoever else edits the file may be doing so now.
        check(root, path, before)?;
        match self.new {
            Some(new) if before.is_some() => new.replace(&file).map_err(Error::io("write", path)),
            Some(new) => new.create(&file).map_err(Error::io("write", path)),
            None => fs::remove_file(&file).map_err(Error::io("remove", path)),
        }?;
        flush(file.parent().unwrap_or(root)).map_err(Error::io("flush the folder of", path))
    }
}

/// A file's text, `None` if there is none.
pub(super) fn read(root: &Path, path: &Path) -> Result<Option<String>, Error> {
    let bytes = match read_bytes(&resolve(root, path)?) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(Error::io("read", path)(error)),
    };
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let end = error.utf8_error().valid_up_to();
        let bytes = error.as_bytes();
        let text = String::from_utf8_lossy(&bytes[..end]);
        let syntax = ConfigError::Syntax {
            path: path.to_owned(),
            position: Position::of(&text, text.len()),
            format: "UTF-8",
            message: format!("byte {:#04x}", bytes[end]),
        };
        syntax.into()
    })
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    // A pipe would be waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LIMIT {
        return Err(too_long());
    }
    Ok(bytes)
}

fn too_long() -> io::Error {
    io::Error::other("it is longer than 16 MiB")
}

/// Removes what a process that was killed left of a file that it was writing.
pub(super) fn clean_up(root: &Path, path: &Path) -> Result<(), Error> {
    new_file::clean_up(&resolve(root, path)?).map_err(Error::io("replace", path))
}

fn check(root: &Path, path: &Path, expected: Option<&str>) -> Result<(), Error> {
    if read(root, path)?.as_deref() == expected {
        Ok(())
    } else {
        Err(Error::Changed { path: path.to_owned() })
    }
}

fn flush(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Configuration is for all to read; a receipt holds whole files, which may have secrets.
fn new_mode(path: &Path) -> u32 {
    if path
        .extension()
        .is_some_and(|extension| extension == super::read::RECEIPT_EXTENSION)
    {
        0o600
    } else {
        0o644
    }
}
