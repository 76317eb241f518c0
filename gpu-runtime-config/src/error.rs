//! Why a configuration was not changed.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// A [`Result`](std::result::Result) whose error is this crate's [`Error`] unless said otherwise.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A place in a text, both counted from 1; the column counts characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column in characters.
    pub column: usize,
}

impl Position {
    pub(crate) fn of(text: &str, offset: usize) -> Position {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Position {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Why a configuration was not changed. Whatever the reason, no file has been touched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is not valid TOML or JSON. The engine would refuse it too: repair it by hand.
    #[error("`{}:{position}` is not valid {format}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where in the file.
        position: Position,
        /// `TOML` or `JSON`.
        format: &'static str,
        /// What the parser expected.
        message: String,
    },
    /// The file is a template that something else renders. Edit what it is rendered into, or use a drop-in.
    #[error("`{}:{position}` holds `{{{{`: it is a template, not a configuration", path.display())]
    Template {
        /// The file.
        path: PathBuf,
        /// Where the first template action is.
        position: Position,
    },
    /// A key holds another kind of value than the engine expects.
    #[error("`{key}` at `{}:{position}` is {found}, not {expected}", path.display())]
    WrongType {
        /// The file.
        path: PathBuf,
        /// Where in the file.
        position: Position,
        /// The key, dotted.
        key: String,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// One object has the same key twice, on the way to what must change: which of them counts is not defined.
    #[error("`{key}` at `{}:{position}` is there twice", path.display())]
    DuplicateKey {
        /// The file.
        path: PathBuf,
        /// Where the second one is.
        position: Position,
        /// The key, dotted.
        key: String,
    },
    /// The file's `version` is newer than any this crate knows.
    #[error("`version = {found}` at `{}:{position}` is newer than {newest}, the newest known", path.display())]
    UnknownVersion {
        /// The file.
        path: PathBuf,
        /// Where the version is.
        position: Position,
        /// The version found.
        found: String,
        /// The newest version known.
        newest: u32,
    },
    /// The daemon cannot read a file of this version, so it does not run from this file.
    #[error("`version = {version}` of `{}` is more than containerd {daemon} reads", path.display())]
    DaemonTooOld {
        /// The file.
        path: PathBuf,
        /// The file's version.
        version: u32,
        /// The daemon's version.
        daemon: String,
    },
    /// The CRI plugin is disabled, as Docker's packages of containerd do: no runtime would be used.
    #[error("`disabled_plugins` at `{}:{position}` disables `{plugin}`: Kubernetes cannot use this containerd", path.display())]
    CriDisabled {
        /// The file.
        path: PathBuf,
        /// Where the plugin's name is.
        position: Position,
        /// The plugin's name as written.
        plugin: String,
    },
    /// The main file does not import the drop-in and may not be edited.
    #[error("`{}` does not import `{}` and is not ours to edit", path.display(), drop_in.display())]
    NotImported {
        /// The main file.
        path: PathBuf,
        /// The drop-in.
        drop_in: PathBuf,
    },
    /// The drop-in's path cannot be one: it is that of the main file, which it would replace, or names several files.
    #[error("`{}` cannot be a drop-in: {reason}", path.display())]
    NoDropIn {
        /// The path.
        path: PathBuf,
        /// Why not.
        reason: &'static str,
    },
    /// A drop-in must have the version of the main file, which is not there and belongs to a distribution that renders it for
    /// its containerd, whose version is not known either: start it, or say which version it has.
    #[error("there is no `{}` yet, and the version of its containerd is not known: what it could read cannot be told", path.display())]
    UnknownDaemon {
        /// The main file.
        path: PathBuf,
    },
    /// A file of version 1 takes no drop-in, and this one may not be edited.
    #[error("`{}` has version 1, which takes no drop-ins, and is not ours to edit", path.display())]
    NoDropIns {
        /// The main file.
        path: PathBuf,
    },
    /// The drop-in's path is taken by a file that configures more than runtimes. Choose another path.
    #[error("`{}` is not only a runtime drop-in: it sets `{key}`", path.display())]
    ForeignDropIn {
        /// The file.
        path: PathBuf,
        /// The first key that is not ours.
        key: String,
    },
    /// The old `default_runtime` table decides the default, whatever `default_runtime_name` says.
    #[error("`{}` sets the deprecated table `default_runtime`, which overrides `default_runtime_name`", path.display())]
    LegacyDefaultRuntime {
        /// The file.
        path: PathBuf,
    },
    /// Another file that is merged later would undo the change.
    #[error("`{key}` would not take effect: `{}` is merged later and sets it otherwise", path.display())]
    Overridden {
        /// The file that wins.
        path: PathBuf,
        /// The key, dotted.
        key: String,
    },
    /// A runtime that cannot be configured.
    #[error("cannot add runtime `{name}`: {reason}")]
    InvalidRuntime {
        /// The runtime's name.
        name: String,
        /// Why not.
        reason: &'static str,
    },
    /// The key is not one of the toolkit's configuration.
    #[error("the toolkit's configuration has no key `{key}`")]
    UnknownKey {
        /// The key, dotted.
        key: String,
    },
    /// The value does not fit the key.
    #[error("`{value}` does not fit `{key}`{}: {expected}", of(path.as_deref()))]
    InvalidValue {
        /// The file that holds it; `None` for one that is to be set.
        path: Option<PathBuf>,
        /// The key, dotted.
        key: String,
        /// The value as given.
        value: String,
        /// What would fit.
        expected: String,
    },
    /// The edited text, parsed again, did not mean what was intended. This is a bug of this crate; the file is untouched.
    #[error("the edit of `{}` would change more than intended (at `{key}`); refused", path.display())]
    Unfaithful {
        /// The file.
        path: PathBuf,
        /// The first key that differs.
        key: String,
    },
    /// A file that would be edited has a name that cannot be kept in the receipt, so that nobody could take the edit back.
    /// Give it a name that is UTF-8.
    #[error("`{}` is not edited: its name is not UTF-8, and no receipt could name it", path.display())]
    NotUtf8 {
        /// The file, or a folder that would be made for it.
        path: PathBuf,
    },
    /// A recorded receipt is not one of ours.
    #[error("the receipt is not usable: {reason}")]
    Receipt {
        /// Why not.
        reason: String,
    },
}

impl Error {
    pub(crate) fn main_as_drop_in(path: &Path) -> Error {
        Error::NoDropIn {
            path: path.to_owned(),
            reason: "it is the main file",
        }
    }
}

fn of(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |path| format!(" of `{}`", path.display()))
}
