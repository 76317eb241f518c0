use std::{
    fs, io,
    path::{Path, PathBuf},
};

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

/// The text of a file; `None` where there is none.
pub(crate) fn read(path: &Path) -> Result<Option<String>, FileError> {
    absent(fs::read_to_string(path)).map_err(FileError::new("read", path))
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
