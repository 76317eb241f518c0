use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, OFlags};

/// The most that one file of `/sys` gives: a page.
pub(crate) const PAGE: u64 = 4096;

/// A file or folder that could not be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} `{}`", path.display())]
pub struct FileError {
    /// What was attempted: read, list, lock, write.
    pub action: &'static str,
    /// The file.
    pub path: PathBuf,
    /// What the operating system answered.
    #[source]
    pub source: io::Error,
}

impl FileError {
    pub(crate) fn new(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self {
            action,
            path: path.to_owned(),
            source,
        }
    }
}

/// The text of a regular file of at most `limit` bytes; `None` where there is none.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Option<String>, FileError> {
    let text = || {
        let bytes = read_bytes(path, limit)?;
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
    };
    absent(text()).map_err(FileError::new("read", path))
}

/// The content of a regular file of at most `limit` bytes; what is none is not waited for.
///
/// # Errors
/// What the operating system answers, [`io::ErrorKind::InvalidInput`] for a folder, a pipe or a device, and
/// [`io::ErrorKind::FileTooLarge`].
pub fn read_bytes(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_at_most(open(path)?, limit)
}

/// The first `most` bytes of a regular file, or all if it has fewer; no more is asked of the kernel, which may ask the hardware
/// for each.
///
/// # Errors
/// As [`read_bytes`], of a long file none.
pub fn read_start(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    regular(open(path)?)?.take(most as u64).read_to_end(&mut content)?;
    Ok(content)
}

/// Not to be held up by a FIFO that stands where a file should.
fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

fn regular(file: OwnedFd) -> io::Result<File> {
    let stat = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok(File::from(file))
}

/// What an open regular file holds from here on, if that is at most `limit` bytes.
pub(crate) fn read_at_most(file: OwnedFd, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    regular(file)?.take(limit.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("longer than {limit} bytes"),
        ));
    }
    Ok(content)
}

/// Where a link leads; `None` where there is none.
pub(crate) fn link(path: &Path) -> Result<Option<PathBuf>, FileError> {
    absent(fs::read_link(path)).map_err(FileError::new("read the link", path))
}

fn absent<T>(answer: io::Result<T>) -> io::Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &Path, limit: u64, expected: Result<&str, &str>) {
        let found = read(path, limit).map_err(|error| error.source.to_string());
        let expected = expected.map(|text| Some(text.to_owned())).map_err(ToOwned::to_owned);
        assert_eq!(found, expected);
    }

    #[test]
    fn a_file_that_is_long_or_none_or_no_text_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "12345").unwrap();
        check(&file, 5, Ok("12345"));
        check(&file, 4, Err("longer than 4 bytes"));
        assert_eq!(read_start(&file, 4).unwrap(), b"1234");
        assert_eq!(read_start(&file, 6).unwrap(), b"12345");
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        check(&fifo, 4, Err("not a regular file"));
        assert!(read_start(&fifo, 4).is_err());
        check(folder.path(), 4, Err("not a regular file"));
        check(Path::new("/dev/zero"), 4, Err("not a regular file"));
        fs::write(&file, [0xff]).unwrap();
        check(&file, 4, Err("invalid utf-8 sequence of 1 bytes from index 0"));
        assert_eq!(read(&folder.path().join("absent"), 4).unwrap(), None);
    }
}
