//! The YAML files of a node, read with the line of what is wrong.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

use serde::{Deserialize, de::DeserializeOwned};

/// The longest file that is read: far more than a node of 254 GPUs in pieces takes.
const LONGEST: u64 = 1 << 24;

/// What is wrong with a file, and in which line where that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) line: Option<u64>,
    pub(crate) message: String,
}

/// The version alone: a file of another one may hold anything else.
#[derive(Deserialize)]
struct Version {
    version: serde_saphyr::Spanned<u32>,
}

/// The text of such a file. What is long beyond reason, or no file, is refused without waiting for it.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut text = String::new();
    File::open(path)?.take(LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST {
        let message = format!("longer than {LONGEST} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

/// Reads a file that begins with the version of its format, which has to be `known`.
pub(crate) fn read<T: DeserializeOwned>(text: &str, known: u32) -> Result<T, Fault> {
    let Version { version } = serde_saphyr::from_str(text).map_err(|error| fault(&error))?;
    if version.value != known {
        let found = version.value;
        return Err(Fault {
            line: Some(version.referenced.line()),
            message: format!(
                "version {found} of this format is not known, only {known}: make the node anew, or use the gpu-sim that wrote it"
            ),
        });
    }
    serde_saphyr::from_str(text).map_err(|error| fault(&error))
}

fn fault(error: &serde_saphyr::Error) -> Fault {
    let line = error.location().map(|place| place.line());
    // The place has a field of its own.
    let message = error.without_snippet().to_string();
    let message = message.split(" at line ").next().unwrap_or_default().to_owned();
    Fault { line, message }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn what_is_long_or_no_file_is_refused_without_waiting() {
        #[track_caller]
        fn check(path: &Path, expected: Result<&str, &str>) {
            let found = text(path).map_err(|error| error.to_string());
            assert_eq!(found.as_deref().map_err(String::as_str), expected);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "version: 1\n").unwrap();
        check(&path, Ok("version: 1\n"));
        let long = File::options().write(true).open(&path).unwrap();
        long.set_len(LONGEST + 1).unwrap();
        check(&path, Err("longer than 16777216 bytes"));
        let fifo = folder.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        check(&fifo, Err("not a regular file"));
        check(folder.path(), Err("not a regular file"));
    }
}
