//! The receipt of a change, as it is kept before, during and after it.

use std::path::PathBuf;

use super::{Apply, Error, disk::Ready, folders, read_file, read_receipt, receipt_path};
use crate::{
    plan::{FileChange, Plan},
    receipt::Receipt,
};

pub(super) struct Kept<'a> {
    how: &'a Apply,
    before: Option<String>,
    /// Says that there is something to finish.
    pub(super) during: Option<Receipt>,
    after: Option<String>,
    /// Whether an earlier change was never finished.
    pub(super) is_unfinished: bool,
    /// The folders that this change and earlier ones make for the files.
    folders: Vec<PathBuf>,
}

impl<'a> Kept<'a> {
    pub(super) fn of(plan: &Plan, how: &'a Apply) -> Result<Self, Error> {
        let (root, path) = (&how.host_root, receipt_path(&how.main));
        let kept = read_receipt(root, &how.main)?;
        let mut folders: Vec<PathBuf> = kept.iter().flat_map(Receipt::folders).collect();
        if plan.receipt.is_some() {
            let written = plan.changes.iter().filter(|change| change.after.is_some());
            let written = written.map(|change| change.path.as_path()).chain([path.as_path()]);
            let missing = folders::missing(root, written)?;
            folders.extend(missing);
            folders.sort();
            folders.dedup();
        }
        let planned = plan.receipt.as_ref().map(|receipt| receipt.with_folders(&folders));
        let planned = planned.transpose()?;
        Ok(Self {
            how,
            before: read_file(root, &path)?.text,
            after: planned.as_ref().map(|receipt| receipt.finished().to_json()),
            is_unfinished: kept.as_ref().is_some_and(Receipt::is_unfinished),
            during: planned.or(kept).map(|receipt| receipt.unfinished()),
            folders,
        })
    }

    /// Where nothing was to be done.
    pub(super) fn is_unchanged(&self) -> Result<(), Error> {
        self.write(self.before.clone(), self.after.clone())
    }

    /// What is returned is for [`end`](Self::end), which needs no space then.
    pub(super) fn begin(&self) -> Result<Option<Ready<'_>>, Error> {
        self.write(self.before.clone(), self.marked()).inspect_err(|_| {
            if self.before.is_none() {
                self.remove_folders();
            }
        })?;
        self.ready(self.marked(), self.after.clone()).inspect_err(|_| {
            // Best effort: the error that matters is the one above.
            let _ = self.take_back();
        })
    }

    pub(super) fn end(&self, ready: Option<Ready<'_>>) -> Result<(), Error> {
        self.put(ready, self.after.is_none())
    }

    /// Where the files are again as they were.
    pub(super) fn take_back(&self) -> Result<(), Error> {
        self.write(self.marked(), self.before.clone())
    }

    /// Where nothing of ours is left of this change and of those before it.
    pub(super) fn forget(&self) -> Result<(), Error> {
        self.write(self.marked(), None)
    }

    fn marked(&self) -> Option<String> {
        self.during.as_ref().map(Receipt::to_json)
    }

    /// Changes what is kept of the receipt, if it is to change.
    fn write(&self, before: Option<String>, after: Option<String>) -> Result<(), Error> {
        let is_gone = after.is_none();
        self.put(self.ready(before, after)?, is_gone)
    }

    /// Our folders go with the last of the receipt, and before it those that it does not lie in: it still names them then.
    fn put(&self, ready: Option<Ready<'_>>, is_gone: bool) -> Result<(), Error> {
        if is_gone {
            self.remove_folders();
        }
        ready.map_or(Ok(()), Ready::make_so)?;
        if is_gone {
            self.remove_folders();
        }
        Ok(())
    }

    /// The change on disk, if there is any.
    fn ready(&self, before: Option<String>, after: Option<String>) -> Result<Option<Ready<'_>>, Error> {
        if before == after {
            return Ok(None);
        }
        let path = receipt_path(&self.how.main);
        Ready::make(&self.how.host_root, &FileChange { path, before, after }).map(Some)
    }

    fn remove_folders(&self) {
        folders::remove_empty(&self.how.host_root, &self.folders);
    }
}
