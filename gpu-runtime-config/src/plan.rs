//! What would change: files before and after, and what was noticed on the way.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{containerd, edit::Format, error::Result, receipt::Receipt};

/// A file as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Where it is on the host.
    pub path: PathBuf,
    /// What it holds; `None` if there is no such file.
    pub text: Option<String>,
}

impl Snapshot {
    /// A file that exists.
    pub fn new(path: impl Into<PathBuf>, text: impl Into<String>) -> Snapshot {
        Snapshot {
            path: path.into(),
            text: Some(text.into()),
        }
    }

    /// A file that does not exist.
    pub fn absent(path: impl Into<PathBuf>) -> Snapshot {
        Snapshot {
            path: path.into(),
            text: None,
        }
    }
}

/// One file that must be written or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileChange {
    /// Where it is on the host.
    pub path: PathBuf,
    /// What it holds now; `None` if there is no such file.
    pub before: Option<String>,
    /// What it must hold; `None` if it must go.
    pub after: Option<String>,
}

/// What must be done to a node's files. Only files that change are in it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Plan {
    /// The changes, to be made in this order.
    pub changes: Vec<FileChange>,
    /// What a person should know.
    pub notices: Vec<Notice>,
    /// What a later [`revert`](crate::revert) needs, to be kept; `None` if nothing of ours is left in the files.
    pub receipt: Option<Receipt>,
}

impl Plan {
    /// Whether no file changes, so that nothing is to be written and nothing restarted.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes as a unified diff, empty if there are none.
    pub fn diff(&self) -> String {
        self.changes.iter().map(FileChange::diff).collect()
    }
}

impl FileChange {
    /// The change that takes this one back.
    #[cfg(feature = "apply")]
    pub(crate) fn inverse(&self) -> FileChange {
        FileChange {
            path: self.path.clone(),
            before: self.after.clone(),
            after: self.before.clone(),
        }
    }

    /// The change as a unified diff with three lines of context.
    pub fn diff(&self) -> String {
        let name = |text: &Option<String>| match text {
            Some(_) => self.path.display().to_string(),
            None => "/dev/null".to_owned(),
        };
        let (before, after) = (
            self.before.as_deref().unwrap_or_default(),
            self.after.as_deref().unwrap_or_default(),
        );
        similar::TextDiff::from_lines(before, after)
            .unified_diff()
            .header(&name(&self.before), &name(&self.after))
            .to_string()
    }
}

/// Something that a person should know about a plan. It does not stop the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// There was no runtime to copy options from: `SystemdCgroup` and the like have containerd's defaults.
    NoTemplate,
    /// This containerd knows no CDI; devices reach containers by the runtime class alone.
    CdiUnsupported {
        /// The daemon's version.
        daemon: containerd::Version,
    },
    /// One of the runtimes is the default already, set by someone else, and stays so.
    DefaultKept {
        /// The default runtime.
        name: String,
    },
    /// A file of version 1 takes no drop-in, so the main file is edited.
    NoDropInsInVersion1 {
        /// The main file.
        path: PathBuf,
    },
    /// A drop-in of another program is replaced; reverting brings it back.
    DropInReplaced {
        /// The drop-in.
        path: PathBuf,
    },
    /// Someone changed this key since it was set here, so it stays as they left it.
    ChangedSince {
        /// The file.
        path: PathBuf,
        /// The key, dotted.
        key: String,
    },
    /// Someone changed a runtime that was added here; it is taken away with what they changed, or set anew.
    RuntimeRemoved {
        /// The file.
        path: PathBuf,
        /// The runtime's key, dotted.
        key: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::NoTemplate => f.write_str(
                "no runtime to copy options from: if the kubelet uses systemd cgroups, give `runc` the option \
                     `SystemdCgroup = true` and configure again",
            ),
            Notice::CdiUnsupported { daemon } => write!(f, "containerd {daemon} has no CDI: use the runtime class"),
            Notice::DefaultKept { name } => write!(f, "`{name}` is the default runtime already and stays so"),
            Notice::NoDropInsInVersion1 { path } => {
                write!(
                    f,
                    "`{}` has version 1, which takes no drop-ins: it is edited itself",
                    path.display()
                )
            }
            Notice::DropInReplaced { path } => write!(f, "`{}` of another program is replaced", path.display()),
            Notice::RuntimeRemoved { path, key } => {
                write!(
                    f,
                    "`{key}` in `{}` was changed by someone else, and what they changed is taken away with it",
                    path.display()
                )
            }
            Notice::ChangedSince { path, key } => {
                write!(
                    f,
                    "`{key}` in `{}` was changed by someone else and stays",
                    path.display()
                )
            }
        }
    }
}

/// One file on its way through a plan.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) path: PathBuf,
    pub(crate) format: Format,
    /// As found on the node.
    pub(crate) found: Option<String>,
    /// As it was before this crate touched it.
    pub(crate) base: Option<String>,
    /// As it must become.
    pub(crate) wanted: Option<String>,
}

/// The plan that takes every draft from what was found to what is wanted.
pub(crate) fn plan(drafts: Vec<Draft>, notices: Vec<Notice>) -> Result<Plan> {
    let receipt = Receipt::of(&drafts)?;
    let changes = drafts
        .into_iter()
        .filter(|draft| draft.found != draft.wanted)
        .map(|draft| FileChange {
            path: draft.path,
            before: draft.found,
            after: draft.wanted,
        })
        .collect();
    Ok(Plan {
        changes,
        notices,
        receipt,
    })
}

/// The draft of a path.
pub(crate) fn draft<'d>(drafts: &'d mut [Draft], path: &Path) -> Option<&'d mut Draft> {
    drafts.iter_mut().find(|draft| draft.path == path)
}
