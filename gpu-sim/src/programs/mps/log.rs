use std::{
    fmt::Display,
    fs::File,
    io::{self, Write as _},
    path::Path,
};

use super::failure::Failure;
use crate::smi::Date;

/// A log as the vendor's programs write it: `[2026-05-31 23:46:49.893 Control 11107] text`.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    /// Whether the lines go to standard output too.
    echo: bool,
}

impl Log {
    pub(super) fn open(path: &Path, echo: bool) -> Result<Self, Failure> {
        let file = File::options().append(true).create(true).open(path);
        let file = file.map_err(Failure::file(path))?;
        Ok(Self { file, echo })
    }

    /// A log that goes to a stream that is open already.
    pub(super) fn to(file: File) -> Self {
        Self { file, echo: false }
    }

    /// A line; a log that cannot be written ends nothing.
    pub(super) fn line(&self, who: &str, text: impl Display) {
        let line = format!("[{} {who} {:>5}] {text}\n", Date::now().iso(), std::process::id());
        let _ = (&self.file).write_all(line.as_bytes());
        if self.echo {
            let _ = io::stdout().write_all(line.as_bytes());
        }
    }
}
