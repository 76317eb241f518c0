//! What was changed, kept so that it can be taken back.

use std::path::Path;
#[cfg(feature = "apply")]
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{
    edit::{Format, Op, edit, parse},
    error::{Error, Result},
    plan::{Draft, Notice, Plan, Snapshot, plan},
    value::{Table, Value},
};

/// The version of the receipts that this crate writes and reads.
const VERSION: u32 = 1;

/// What a plan changed, as [`revert`] needs it. Keep it with [`to_json`](Receipt::to_json) where only root can read it:
/// it holds the files' whole texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    version: u32,
    /// Whether the files are being changed, and the engine has yet to read them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unfinished: bool,
    files: Vec<ReceiptFile>,
    /// The folders that were made for the files, each after the one that it is in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    folders: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReceiptFile {
    /// Text, since JSON has no other paths: one that is not UTF-8 is refused when the receipt is made.
    path: String,
    format: Format,
    before: Option<String>,
    after: Option<String>,
    /// What an earlier plan of ours had made of it, in case the change from that to `after` was never made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    earlier: Option<String>,
}

impl ReceiptFile {
    /// Whether the file is as this crate left it.
    fn is_ours(&self, found: Option<&str>) -> bool {
        found == self.after.as_deref() || found.is_some() && found == self.earlier.as_deref()
    }
}

impl Receipt {
    pub(crate) fn of(drafts: &[Draft]) -> Result<Option<Receipt>> {
        let files = drafts
            .iter()
            .filter(|draft| draft.base != draft.wanted)
            .map(|draft| {
                Ok(ReceiptFile {
                    path: text(&draft.path)?,
                    format: draft.format,
                    before: draft.base.clone(),
                    after: draft.wanted.clone(),
                    earlier: draft
                        .found
                        .clone()
                        .filter(|_| draft.found != draft.base && draft.found != draft.wanted),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        Ok((!files.is_empty()).then_some(Receipt {
            version: VERSION,
            unfinished: false,
            files,
            folders: Vec::new(),
        }))
    }

    /// The same, kept while the files are being changed.
    #[cfg(feature = "apply")]
    pub(crate) fn unfinished(&self) -> Receipt {
        Receipt {
            unfinished: true,
            ..self.clone()
        }
    }

    /// The same, kept when they are.
    #[cfg(feature = "apply")]
    pub(crate) fn finished(&self) -> Receipt {
        let mut finished = self.clone();
        finished.files.iter_mut().for_each(|file| file.earlier = None);
        finished
    }

    /// The same, with the folders that were made for the files.
    #[cfg(feature = "apply")]
    pub(crate) fn with_folders(&self, folders: &[PathBuf]) -> Result<Receipt> {
        Ok(Receipt {
            folders: folders.iter().map(|folder| text(folder)).collect::<Result<_>>()?,
            ..self.clone()
        })
    }

    /// The folders that were made for the files, each after the one that it is in.
    #[cfg(feature = "apply")]
    pub(crate) fn folders(&self) -> impl Iterator<Item = PathBuf> {
        self.folders.iter().map(PathBuf::from)
    }

    /// Whether it was kept while files were being changed, and that was never said to be done.
    #[cfg(feature = "apply")]
    pub(crate) fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    /// Reads a kept receipt.
    ///
    /// # Errors
    /// [`Error::Receipt`] if it is not one, or of a version that this crate does not know.
    pub fn from_json(text: &str) -> Result<Receipt> {
        let receipt: Receipt = serde_json::from_str(text).map_err(|error| Error::Receipt {
            reason: error.to_string(),
        })?;
        if receipt.version != VERSION {
            return Err(Error::Receipt {
                reason: format!("its version is {}, not {VERSION}", receipt.version),
            });
        }
        Ok(receipt)
    }

    /// The receipt as text.
    #[expect(
        clippy::missing_panics_doc,
        reason = "it cannot: strings, numbers and lists of them are JSON"
    )]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("strings and numbers are JSON") + "\n"
    }

    /// The files that were changed: [`revert`] wants to see each of them as it is now.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| Path::new(&file.path))
    }
}

/// A path as a receipt keeps it.
fn text(path: &Path) -> Result<String> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Error::NotUtf8 { path: path.to_owned() })
}

/// Takes back what a receipt says was changed.
///
/// A file that nobody else has edited since gets its exact bytes back, or goes if it was not there before. In one that
/// somebody has edited only the keys set by this crate are taken back; what they changed stays, with a notice. A runtime of
/// this crate goes as a whole, with a notice if somebody has changed it; `runc` stays then.
///
/// # Errors
/// [`Error::Receipt`] if `found` lacks a file that the receipt names; else as for a file that cannot be read or edited.
pub fn revert(found: &[Snapshot], receipt: &Receipt) -> Result<Plan> {
    let (mut drafts, notices) = drafts(found, Some(receipt), Format::Toml)?;
    for draft in &mut drafts {
        draft.wanted.clone_from(&draft.base);
    }
    plan(drafts, notices)
}

/// The files with what this crate did to them taken back, as a base for doing it anew.
pub(crate) fn drafts(
    found: &[Snapshot],
    receipt: Option<&Receipt>,
    format: Format,
) -> Result<(Vec<Draft>, Vec<Notice>)> {
    let mut notices = Vec::new();
    let recorded =
        |path: &Path| receipt.and_then(|receipt| receipt.files.iter().find(|file| Path::new(&file.path) == path));
    if let Some(unread) = receipt.and_then(|receipt| {
        receipt
            .paths()
            .find(|path| found.iter().all(|snapshot| snapshot.path != *path))
    }) {
        return Err(Error::Receipt {
            reason: format!("`{}`, which it names, was not read", unread.display()),
        });
    }
    let mut drafts: Vec<Draft> = Vec::new();
    for snapshot in found {
        if drafts.iter().any(|draft| draft.path == snapshot.path) {
            continue;
        }
        let base = match recorded(&snapshot.path) {
            Some(file) => undo(file, snapshot.text.as_deref(), &mut notices)?,
            None => snapshot.text.clone(),
        };
        drafts.push(Draft {
            path: snapshot.path.clone(),
            format: recorded(&snapshot.path).map_or(format, |file| file.format),
            found: snapshot.text.clone(),
            wanted: base.clone(),
            base,
        });
    }
    Ok((drafts, notices))
}

/// The text without what this crate did to it.
fn undo(file: &ReceiptFile, found: Option<&str>, notices: &mut Vec<Notice>) -> Result<Option<String>> {
    if file.is_ours(found) {
        return Ok(file.before.clone());
    }
    let (Some(found), Some(after)) = (found, file.after.as_deref()) else {
        // Gone since, or put back since: as somebody left it.
        return Ok(found.map(str::to_owned));
    };
    let path = Path::new(&file.path);
    let value = |text: &str| parse(file.format, path, text);
    let before = file
        .before
        .as_deref()
        .map_or_else(|| Ok(Value::Table(Table::new())), value)?;
    let (after, current) = (value(after)?, value(found)?);
    let mut undo = Undo {
        file: path,
        ops: Vec::new(),
        notices,
    };
    undo.table(&before, &after, &current, &mut Vec::new());
    let ops = undo.ops;
    if file.before.is_none() {
        // The file was made here. If nothing else is in it now it goes, else what is left keeps its version.
        let rest = parse(file.format, path, &edit(file.format, path, found, &ops)?)?;
        if is_hollow(&rest) {
            return Ok(None);
        }
        let ops: Vec<Op> = ops
            .into_iter()
            .filter(|op| *op != Op::Remove(vec!["version".to_owned()]))
            .collect();
        return edit(file.format, path, found, &ops).map(Some);
    }
    edit(file.format, path, found, &ops).map(Some)
}

/// Whether a value holds nothing but empty tables.
fn is_hollow(value: &Value) -> bool {
    value.as_table().is_some_and(|table| table.values().all(is_hollow))
}

struct Undo<'u> {
    file: &'u Path,
    ops: Vec<Op>,
    notices: &'u mut Vec<Notice>,
}

impl Undo<'_> {
    /// Compares three states of one table, key by key.
    fn table(&mut self, before: &Value, after: &Value, current: &Value, path: &mut Vec<String>) {
        let Some(after) = after.as_table() else { return };
        for (key, after) in after {
            path.push(key.clone());
            self.key(before.get(&[key]), after, current.get(&[key]), path);
            path.pop();
        }
    }

    fn key(&mut self, before: Option<&Value>, after: &Value, current: Option<&Value>, path: &mut Vec<String>) {
        let Some(current) = current else { return };
        match (before, after, current) {
            (Some(before), after, _) if before == after => {}
            (Some(before @ Value::Table(_)), Value::Table(_), Value::Table(_)) => {
                self.table(before, after, current, path);
            }
            (None, after, current) if after == current => self.ops.push(Op::Remove(path.clone())),
            // Element by element, so that the comments between them stay.
            (before, Value::Array(after), Value::Array(current)) => {
                let is_new = before.is_none();
                let before = before.and_then(Value::as_array).unwrap_or_default();
                let ours: Vec<Value> = after.iter().filter(|item| !before.contains(item)).cloned().collect();
                if is_new && current.iter().all(|item| ours.contains(item)) {
                    self.ops.push(Op::Remove(path.clone()));
                } else {
                    self.ops.push(Op::Take(path.clone(), ours));
                }
            }
            (Some(before), after, current) if after == current => {
                let keys: Vec<&str> = path.iter().map(String::as_str).collect();
                if let Value::Table(table) = Value::nested(&keys, before.clone()) {
                    self.ops.push(Op::Merge(table));
                }
            }
            // Who gives it options means the one that containerd has anyway: without our key they would break it.
            (None, Value::Table(_), Value::Table(_)) if is_runtime(path) && path.ends_with(&["runc".to_owned()]) => {
                self.notices.push(self.notice(path));
            }
            // Another one goes as a whole: without the keys set here the rest of it would be a broken runtime.
            (None, Value::Table(_), Value::Table(_)) if is_runtime(path) => {
                self.notices.push(Notice::RuntimeRemoved {
                    path: self.file.to_owned(),
                    key: path.join("."),
                });
                self.ops.push(Op::Remove(path.clone()));
            }
            (None, Value::Table(_), Value::Table(_)) => {
                self.table(&Value::Table(Table::new()), after, current, path);
            }
            _ => self.notices.push(self.notice(path)),
        }
    }

    /// That a key stays as somebody left it.
    fn notice(&self, path: &[String]) -> Notice {
        Notice::ChangedSince {
            path: self.file.to_owned(),
            key: path.join("."),
        }
    }
}

/// Whether a key names one runtime, in the configuration of any engine.
fn is_runtime(path: &[String]) -> bool {
    path.len() >= 2 && path[path.len() - 2] == "runtimes"
}
