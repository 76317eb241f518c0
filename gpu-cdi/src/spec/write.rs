use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use super::{Format, Spec};
use crate::{Error, Result};

impl Spec {
    /// Checks this spec and puts it in place of the file at `path`, whole or not at all.
    ///
    /// A reader sees the old file or the new one and never a part, also after a crash: the text goes to a temporary file
    /// in the same folder, which has its final mode (`0644`: rootless runtimes read it too) from the start, is synced
    /// and then renamed. The folder is made (`0755`) if it is missing. The extension picks the notation.
    ///
    /// # Errors
    /// [`Error::Invalid`] and [`Error::Extension`] before anything is touched; [`Error::CreateDir`] and
    /// [`Error::Write`] with the old file as it was and no temporary file left.
    pub fn write(&self, path: &Path) -> Result<()> {
        self.validate()?;
        let format = Format::of(path).ok_or_else(|| Error::Extension { path: path.to_owned() })?;
        let text = self.to_text(format)?;
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(dir)
            .map_err(|source| Error::CreateDir {
                path: dir.to_owned(),
                source,
            })?;
        replace(dir, path, text.as_bytes()).map_err(|source| Error::Write {
            path: path.to_owned(),
            source,
        })
    }
}

fn replace(dir: &Path, path: &Path, text: &[u8]) -> io::Result<()> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
    // Neither `.json` nor `.yaml` at its end: no reader takes it for a spec.
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = dir.join(temporary);

    let written = fill(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // Best effort: the first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    File::open(dir)?.sync_all()
}

fn fill(temporary: &Path, text: &[u8]) -> io::Result<()> {
    // A process with this id may have died here earlier.
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(temporary)?;
    // The process's umask took its share at creation.
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.write_all(text)?;
    file.sync_all()
}
