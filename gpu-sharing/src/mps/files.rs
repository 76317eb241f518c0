//! What the daemon has written.

use std::{
    fs::{File, TryLockError},
    io::{self, Read as _},
    path::PathBuf,
};

use super::{Agreement, ParseAgreementError, Root};
use crate::config::ResourceName;

/// Why it is not known what a daemon serves.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
    /// The file makes no sense.
    #[error("cannot use `{}`", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: ParseAgreementError,
    },
}

/// What the daemon of a resource serves at the moment; `None` where there is none that serves.
///
/// A daemon of ours holds a lock on its file as long as it lives, so that what one left that was killed does not count.
///
/// # Errors
/// Where the file is there and cannot be understood.
pub fn agreement(root: &Root, resource: &ResourceName) -> Result<Option<Agreement>, ReadError> {
    let path = root.started(resource);
    let failed = |source| ReadError::Read {
        path: path.clone(),
        source,
    };
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    let agreement = Agreement::parse(&text).map_err(|source| ReadError::Parse {
        path: path.clone(),
        source,
    })?;
    let lives = match (&agreement, file.try_lock_shared()) {
        (Agreement::Unknown, _) | (_, Err(TryLockError::WouldBlock)) => true,
        (Agreement::Serves(_), Ok(())) => false,
        (Agreement::Serves(_), Err(TryLockError::Error(error))) => return Err(failed(error)),
    };
    Ok(Some(agreement).filter(|_| lives))
}
