use std::{
    collections::HashMap,
    fmt, io,
    path::{Path, PathBuf},
    rc::Rc,
};

use gpu_core::root::{Resolved, Root};
use rustix::{
    fs::{FileType, Stat},
    io::Errno,
};
use serde::{Deserialize, Serialize};

use super::libraries::CachedLibrary;
use crate::{Error, Result};

/// A file of the driver root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FoundFile {
    /// Where it was found, and where it belongs in a container.
    pub path: String,
    /// Where its content is, if following links from `path` on the host would end elsewhere than within the driver root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

impl FoundFile {
    /// The path whose content is meant, also for someone who sees the driver root as a mere folder.
    pub fn content(&self) -> &str {
        self.content.as_deref().unwrap_or(&self.path)
    }
}

/// A configuration file, which is mounted where the programs in a container look for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigFile {
    /// The file in the driver root.
    pub file: FoundFile,
    /// Its place in a container.
    pub container_path: String,
}

/// Something of the driver root that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(deny_unknown_fields)]
#[error("cannot read `{path}`: {reason}")]
pub struct FileProblem {
    /// Its path beneath the driver root.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// A root under search, and what went wrong so far.
#[derive(Debug)]
pub(super) struct Search {
    pub(super) root: Root,
    pub(super) problems: Vec<FileProblem>,
    /// What this process ran out of, so that what follows would only seem to be missing.
    exhausted: Option<(PathBuf, io::Error)>,
    /// The loader's cache, once it was asked for.
    pub(super) cached: Option<Vec<CachedLibrary>>,
    /// The names in folders that were listed: most are looked at for many libraries.
    listed: HashMap<PathBuf, Rc<[String]>>,
    /// Where folders are whose files were looked at.
    folders: HashMap<PathBuf, Resolved>,
}

impl Search {
    pub(super) fn new(root: Root) -> Self {
        Self {
            root,
            problems: Vec::new(),
            exhausted: None,
            cached: None,
            listed: HashMap::new(),
            folders: HashMap::new(),
        }
    }

    /// The problems, if the search could be carried through.
    pub(super) fn finish(self) -> Result<Vec<FileProblem>> {
        match self.exhausted {
            Some((path, source)) => Err(Error::Exhausted { path, source }),
            None => Ok(self.problems),
        }
    }

    /// Lists what the operating system could not do, unless there is simply nothing.
    pub(super) fn failed(&mut self, path: &Path, error: &io::Error) {
        if is_absent(error) {
            return;
        }
        let errno = Errno::from_io_error(error);
        if let Some(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) = errno {
            self.exhausted.get_or_insert_with(|| (path.to_owned(), errno.into()));
        }
        self.problem(path, error);
    }

    /// Lists a problem, once.
    pub(super) fn problem(&mut self, path: &Path, reason: &dyn fmt::Display) {
        let problem = FileProblem {
            path: path.to_string_lossy().into_owned(),
            reason: reason.to_string(),
        };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// The names in a folder; none if it is missing, none and a problem if it cannot be read.
    pub(super) fn list(&mut self, dir: &Path) -> Rc<[String]> {
        if let Some(names) = self.listed.get(dir) {
            return Rc::clone(names);
        }
        let names: Rc<[String]> = match self.root.list(dir) {
            Ok(names) => names.into_iter().filter_map(|name| name.into_string().ok()).collect(),
            Err(error) => {
                self.failed(dir, &error);
                Rc::default()
            }
        };
        self.listed.insert(dir.to_owned(), Rc::clone(&names));
        names
    }

    /// What `path` leads to, and where that is; `None` if there is nothing, or it cannot be read, which is a problem.
    pub(super) fn target(&mut self, path: &Path) -> Option<(Stat, Resolved)> {
        match self.follow(path) {
            Ok(target) => Some(target),
            Err(error) => {
                self.failed(path, &error);
                None
            }
        }
    }

    fn follow(&mut self, path: &Path) -> io::Result<(Stat, Resolved)> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok((self.root.stat(path)?, self.root.resolve(path)?));
        };
        let stat = self.root.lstat(path)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            return Ok((self.root.stat(path)?, self.root.resolve(path)?));
        }
        let Resolved { path, host_differs } = self.resolve_folder(folder)?;
        let resolved = Resolved {
            path: path.join(name),
            host_differs,
        };
        Ok((stat, resolved))
    }

    fn resolve_folder(&mut self, folder: &Path) -> io::Result<Resolved> {
        if let Some(known) = self.folders.get(folder) {
            return Ok(known.clone());
        }
        let resolved = self.root.resolve(folder)?;
        self.folders.insert(folder.to_owned(), resolved.clone());
        Ok(resolved)
    }

    /// The file at `path`, if `accept` takes what it leads to; never a folder.
    pub(super) fn file(&mut self, path: &Path, accept: impl Fn(&Stat) -> bool) -> Option<FoundFile> {
        self.entry(path, |stat| !is_dir(stat) && accept(stat))
    }

    /// The folder at `path`.
    pub(super) fn folder(&mut self, path: &Path) -> Option<FoundFile> {
        self.entry(path, is_dir)
    }

    fn entry(&mut self, path: &Path, accept: impl Fn(&Stat) -> bool) -> Option<FoundFile> {
        let (stat, resolved) = self.target(path)?;
        if !accept(&stat) {
            return None;
        }
        let content = resolved
            .host_differs
            .then(|| resolved.path.into_os_string().into_string());
        let (Some(path_text), Ok(content)) = (path.to_str(), content.transpose()) else {
            self.problem(path, &"its name is not UTF-8");
            return None;
        };
        Some(FoundFile {
            path: path_text.to_owned(),
            content,
        })
    }

    /// The first of `dirs` that has the file.
    pub(super) fn first(&mut self, dirs: &[PathBuf], name: &str, accept: impl Fn(&Stat) -> bool) -> Option<FoundFile> {
        dirs.iter().find_map(|dir| self.file(&dir.join(name), &accept))
    }
}

pub(super) fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Whether an error only says that nothing is there.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
