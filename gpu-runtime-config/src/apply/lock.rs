//! One at a time.

use std::{
    fs::{File, TryLockError},
    path::Path,
    thread::sleep,
    time::Duration,
};

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::{Error, Stop, patience::Patience};

/// Longer than any change takes, restart and health check included.
const LIMIT: Duration = Duration::from_mins(10);

const PAUSE: Duration = Duration::from_millis(20);

/// The right to change the files of a host's engines, which one program at a time has; given back when it is dropped.
///
/// It is an advisory lock on the host's root itself, which is the same one wherever it is mounted, and leaves no file behind.
#[derive(Debug)]
pub struct Lock {
    _root: File,
}

/// Takes the lock, before anything is read of what is to be changed; waits for a program that has it.
///
/// # Errors
/// [`Error::HostRoot`] if the host's root is no folder, [`Error::Busy`] after ten minutes, and [`Error::Stopped`].
pub fn lock(host_root: &Path, stop: &Stop) -> Result<Lock, Error> {
    let patience = Patience::of(LIMIT, stop);
    loop {
        if let Some(lock) = try_lock(host_root)? {
            return Ok(lock);
        }
        if patience.check().is_err() {
            let path = host_root.to_owned();
            return Err(if stop.is_stopped() {
                let path = path.display();
                Error::stopped(format!(
                    "while another program was changing the files of the engines beneath `{path}`"
                ))
            } else {
                Error::Busy { path }
            });
        }
        sleep(PAUSE);
    }
}

/// Takes the lock if no other program has it.
///
/// # Errors
/// [`Error::HostRoot`] if the host's root is no folder.
pub fn try_lock(host_root: &Path) -> Result<Option<Lock>, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let failed = |source: std::io::Error| Error::HostRoot {
        path: host_root.to_owned(),
        source,
    };
    let root = openat(CWD, host_root, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
    let root = File::from(root);
    match root.try_lock() {
        Ok(()) => Ok(Some(Lock { _root: root })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}
