//! Carrying a plan out on a node: write, restart, look whether the engine lives, and take it back if it does not.
//!
//! Everything here works below a host root, so that it runs in a container that has the host mounted.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use self::{engine::Failure, kept::Kept};
use crate::{
    plan::{FileChange, Plan},
    receipt::{Receipt, revert},
};

mod daemon;
mod disk;
mod engine;
mod error;
mod folders;
mod host_path;
mod kept;
mod lock;
mod new_file;
mod patience;
mod program;
mod read;
mod socket;

pub use daemon::containerd_version;
pub use engine::{Health, Restart};
pub use error::Error;
pub use lock::{Lock, lock, try_lock};
pub use patience::Stop;
pub use read::{read_containerd, read_crio, read_file, read_receipt, receipt_path};
pub use socket::Socket;

/// How a plan is carried out.
#[derive(Debug, Clone)]
pub struct Apply {
    /// Where the host's file system is: `/` on the host.
    pub host_root: PathBuf,
    /// The main file, by which the receipt is named ([`receipt_path`]).
    pub main: PathBuf,
    /// How the engine is made to read its files.
    pub restart: Restart,
    /// How the engine shows that it lives; `None` to trust it.
    pub health: Option<Health>,
    /// What ends the waiting for the engine: then a change is not made or taken back, and what takes changes back is done
    /// all the same ([`Outcome::NotAwaited`]).
    pub stop: Stop,
    /// Who is told of each step: an engine may be waited for long.
    pub tell: fn(Step<'_>),
}

/// What is being done while a plan is carried out.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Step<'s> {
    /// These files are written, and the engine is told to read them next.
    Written(&'s [FileChange]),
    /// The engine was told, if it is to be told, and is waited for.
    Awaited(&'s Health),
    /// The old files are back, and the engine is told to read them next.
    TakenBack {
        /// Why.
        cause: &'s Error,
    },
}

/// What carrying out a plan came to.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// There was nothing to do: no file was written and nothing restarted.
    Unchanged,
    /// The files are written, and the engine was restarted as asked and lives.
    Applied,
    /// The files are as before this crate changed them, and the engine was not to be waited for any longer: whether it lives
    /// is not known.
    NotAwaited {
        /// Why the engine could not even be told to read them; `None` if it was.
        untold: Option<Error>,
    },
    /// The engine did not come up with the new files, or was not to be waited for. The old ones are back.
    RolledBack {
        /// Why the change was taken back.
        cause: Error,
        /// Why the engine still does not live with the old files, or could not be told to read them; `None` if neither is so.
        still: Option<Error>,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Unchanged => f.write_str("there was nothing to do"),
            Outcome::Applied => f.write_str("the files are written, and the engine lives"),
            Outcome::NotAwaited { untold: None } => {
                f.write_str("the files are written, and the engine was not waited for")
            }
            Outcome::NotAwaited { untold: Some(error) } => write!(f, "the files are written, and {error}"),
            Outcome::RolledBack { cause, still: None } => write!(f, "the old files are back, since {cause}"),
            Outcome::RolledBack {
                cause,
                still: Some(still),
            } => write!(f, "the old files are back, since {cause}, and {still} with them too"),
        }
    }
}

/// Whether carrying a plan out writes files and restarts the engine: if a file is to change, and also if an earlier change was
/// interrupted, which is finished then.
///
/// # Errors
/// [`Error::Io`] and [`Error::Config`] if the receipt cannot be read.
pub fn is_due(plan: &Plan, host_root: &Path, main: &Path) -> Result<bool, Error> {
    let kept = read_receipt(host_root, main)?;
    Ok(!plan.is_empty() || kept.as_ref().is_some_and(Receipt::is_unfinished))
}

/// Carries out a plan, under the [`lock`] that was taken before the files were read.
///
/// The receipt goes to [`receipt_path`] before any file changes and says until the end that there is something to finish: after
/// a crash, whenever it came, the same plan made anew goes on where this one ended, the restart included, and
/// [`revert`] gives back what there was. If a write, the restart or the health check fails, every file gets
/// its bytes back and the engine is restarted again. The receipt also names the folders that were made for the files: they go
/// with it, but for those that something else is in.
///
/// # Errors
/// [`Error::Io`] and [`Error::Changed`], with the files as they were and nothing restarted; where it is the receipt that cannot
/// be written at the end, all is done, and the engine will be restarted once more. [`Error::NotTakenBack`] where the engine did
/// not live and the files could not be given back: the receipt still names them. [`Error::Stopped`] if a change was not to be
/// waited for before it began: nothing is done. That the engine did not live is not an
/// error but [`Outcome::RolledBack`], and so is that it was not to be waited for any longer: then the engine has been
/// told to read its old files if it may have read the new ones, and nothing is known of it. What takes changes back is not
/// itself taken back for that, nor left out: [`Outcome::NotAwaited`].
pub fn apply(plan: &Plan, how: &Apply, _lock: &Lock) -> Result<Outcome, Error> {
    let is_taking_back = plan.receipt.is_none();
    if how.stop.is_stopped() && !is_taking_back {
        return Err(Error::stopped("before anything was changed"));
    }
    let root = &how.host_root;
    let kept = Kept::of(plan, how)?;
    clean_up(plan, how, &kept)?;
    if plan.is_empty() && !kept.is_unfinished {
        kept.is_unchanged()?;
        return Ok(Outcome::Unchanged);
    }
    let end = kept.begin()?;
    if let Err(error) = disk::write_all(root, &plan.changes) {
        drop(end);
        // Best effort: the error that matters is the one above.
        let _ = kept.take_back();
        return Err(error);
    }
    if !plan.is_empty() {
        (how.tell)(Step::Written(&plan.changes));
    }
    let Err(failure) = engine::restart_and_check(how) else {
        kept.end(end)?;
        return Ok(Outcome::Applied);
    };
    if is_taking_back && how.stop.is_stopped() {
        kept.end(end)?;
        let told = if failure.is_told {
            Ok(())
        } else {
            engine::restart_without_waiting(how)
        };
        return Ok(Outcome::NotAwaited { untold: told.err() });
    }
    drop(end);
    if let Err(source) = put_back(plan, how, &kept) {
        let (cause, source) = (Box::new(failure.cause), Box::new(source));
        return Err(Error::NotTakenBack { cause, source });
    }
    let still = restart_as_before(how, &kept, &failure).err();
    let cause = failure.cause;
    Ok(Outcome::RolledBack { cause, still })
}

/// Removes what a process that was killed left of any file that this crate writes, be it as it should be now: CRI-O reads
/// whatever lies beside its drop-in.
fn clean_up(plan: &Plan, how: &Apply, kept: &Kept<'_>) -> Result<(), Error> {
    let receipt = receipt_path(&how.main);
    let changed = plan.changes.iter().map(|change| change.path.as_path());
    let ours = kept.during.iter().flat_map(Receipt::paths);
    let mut paths = changed.chain(ours).chain([how.main.as_path(), &receipt]);
    paths.try_for_each(|path| disk::clean_up(&how.host_root, path))
}

fn put_back(plan: &Plan, how: &Apply, kept: &Kept<'_>) -> Result<(), Error> {
    let root = &how.host_root;
    match &kept.during {
        // What brought the engine down was written by one that did not live to see it.
        Some(unfinished) if plan.is_empty() => {
            disk::write_all(root, &taken_back(root, unfinished)?)?;
            kept.forget()
        }
        _ => {
            let back: Vec<_> = plan.changes.iter().rev().map(FileChange::inverse).collect();
            disk::write_all(root, &back)?;
            kept.take_back()
        }
    }
}

/// Has the engine read its old files, unless it still runs with them.
fn restart_as_before(how: &Apply, kept: &Kept<'_>, failure: &Failure) -> Result<(), Error> {
    if failure.is_before_restart() && !kept.is_unfinished {
        return Ok(());
    }
    (how.tell)(Step::TakenBack { cause: &failure.cause });
    if how.stop.is_stopped() {
        engine::restart_without_waiting(how)
    } else {
        engine::restart_and_check(how).map_err(|failure| failure.cause)
    }
}

/// What gives the files back that a receipt names.
fn taken_back(root: &Path, receipt: &Receipt) -> Result<Vec<FileChange>, Error> {
    let found = receipt.paths().map(|path| read_file(root, path));
    let found = found.collect::<Result<Vec<_>, _>>()?;
    Ok(revert(&found, receipt)?.changes)
}

#[cfg(test)]
mod tests;
