//! Carrying a plan out on a node: write, restart, look whether the engine lives, and take it back if it does not.
//!
//! Everything here works below a host root, so that it runs in a container that has the host mounted.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    error::Error as ConfigError,
    plan::{FileChange, Plan},
    receipt::Receipt,
};

mod daemon;
mod disk;
mod engine;
mod read;

pub use daemon::containerd_version;
pub use engine::{Health, Restart};
pub use read::{read_containerd, read_crio, read_file, read_receipt, receipt_path};

/// How a plan is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Apply {
    /// Where the host's file system is: `/` on the host.
    pub host_root: PathBuf,
    /// The main file, by which the receipt is named ([`receipt_path`]).
    pub main: PathBuf,
    /// How the engine is made to read its files.
    pub restart: Restart,
    /// How the engine shows that it lives; `None` to trust it.
    pub health: Option<Health>,
}

/// What carrying out a plan came to.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// There was nothing to do: no file was written and nothing restarted.
    Unchanged,
    /// The files are written, and the engine was restarted as asked and lives.
    Applied,
    /// The engine did not come up with the new files. The old ones are back.
    RolledBack {
        /// Why the change was taken back.
        cause: Error,
        /// Why the engine still does not live with the old files; `None` if it does.
        still: Option<Error>,
    },
}

/// Why a plan could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read, written or removed. The files that had been written are as before.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the operating system answered.
        #[source]
        source: std::io::Error,
    },
    /// A file is not what the plan was made for: somebody changed it since. Make a new plan.
    #[error("`{}` has changed since it was read", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The engine could not be restarted.
    #[error("cannot restart the engine by {method}: {reason}")]
    Restart {
        /// How it was attempted.
        method: String,
        /// What came of it.
        reason: String,
    },
    /// The engine did not answer in time.
    #[error("`{}` did not answer within {} s: {reason}", socket.display(), timeout.as_secs())]
    Unhealthy {
        /// The engine's socket.
        socket: PathBuf,
        /// How long it was waited for.
        timeout: Duration,
        /// What was seen last.
        reason: String,
    },
    /// A file of the node says something that this crate cannot use.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl Error {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    }
}

/// Carries out a plan.
///
/// The receipt goes to [`receipt_path`] before any file changes, so that a crash in between can be reverted. If a write,
/// the restart or the health check fails, every file gets its bytes back and the engine is restarted again.
///
/// # Errors
/// [`Error::Io`] and [`Error::Changed`], with the files as they were and nothing restarted. That the engine did not live
/// is not an error but [`Outcome::RolledBack`].
pub fn apply(plan: &Plan, how: &Apply) -> Result<Outcome, Error> {
    let mut changes = plan.changes.clone();
    changes.extend(receipt_change(plan, how)?);
    // The receipt first when there is one to keep, last when it goes.
    changes.sort_by_key(|change| change.path != receipt_path(&how.main) || change.after.is_none());
    disk::write_all(&how.host_root, &changes)?;
    if plan.is_empty() {
        return Ok(Outcome::Unchanged);
    }
    let Err(cause) = engine::restart_and_check(how) else {
        return Ok(Outcome::Applied);
    };
    let back: Vec<FileChange> = changes
        .into_iter()
        .rev()
        .map(|change| FileChange {
            path: change.path,
            before: change.after,
            after: change.before,
        })
        .collect();
    let still = disk::write_all(&how.host_root, &back)
        .and_then(|()| engine::restart_and_check(how))
        .err();
    Ok(Outcome::RolledBack { cause, still })
}

/// What must become of the kept receipt; `None` if it is right already.
fn receipt_change(plan: &Plan, how: &Apply) -> Result<Option<FileChange>, Error> {
    let path = receipt_path(&how.main);
    let before = read_file(&how.host_root, &path)?.text;
    let after = plan.receipt.as_ref().map(Receipt::to_json);
    Ok((before != after).then_some(FileChange { path, before, after }))
}

#[cfg(test)]
mod tests;
