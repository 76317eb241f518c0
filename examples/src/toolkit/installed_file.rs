//! A file that is to be on the node.

use std::{
    fs,
    fs::File,
    io::{self, BufRead as _, BufReader, Read},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};

use crate::{
    program::print,
    whole_file::{self, New},
};

/// A file and what it is to hold.
#[derive(Debug)]
pub(super) struct InstalledFile {
    pub(super) path: PathBuf,
    pub(super) content: Content,
    pub(super) mode: u32,
}

/// What a file is to hold. Programs are copied piece by piece: the daemon would keep the memory that a whole one takes.
#[derive(Debug)]
pub(super) enum Content {
    Text(String),
    OfFile(PathBuf),
}

impl InstalledFile {
    /// Whether it is there as it should be.
    pub(super) fn is_in_place(&self) -> bool {
        let has_mode = fs::metadata(&self.path).is_ok_and(|status| status.permissions().mode() & 0o7777 == self.mode);
        has_mode && self.content.is_in(&self.path).is_ok_and(|is_there| is_there)
    }

    /// Says whether it would be put in place.
    pub(super) fn announce(&self) -> anyhow::Result<()> {
        let path = self.path.display();
        if self.is_in_place() {
            print(format_args!("would leave `{path}` as it is\n"))
        } else {
            print(format_args!("would install `{path}`\n"))
        }
    }

    /// Puts it in place, whole or not at all; what is as it should be is not touched: containers run by it.
    /// What one that was killed left of it goes: no second one of these programs is at work on the node.
    pub(super) fn put(&self) -> anyhow::Result<()> {
        let path = &self.path;
        let Some(folder) = path.parent() else {
            bail!("`{}` is no file", path.display())
        };
        let clean_up = || -> io::Result<()> {
            fs::create_dir_all(folder)?;
            whole_file::clean_up(path)
        };
        clean_up().with_context(|| format!("cannot install `{}`", path.display()))?;
        if self.is_in_place() {
            return Ok(());
        }
        let write = || -> io::Result<()> {
            let new = New {
                mode: self.mode,
                owner: None,
                lasting: true,
            };
            new.put(path, &mut *self.content.open()?)
        };
        write().with_context(|| format!("cannot install `{}`", path.display()))?;
        tracing::info!("installed `{}`", path.display());
        Ok(())
    }
}

impl Content {
    fn open(&self) -> io::Result<Box<dyn Read + '_>> {
        Ok(match self {
            Self::Text(text) => Box::new(text.as_bytes()),
            Self::OfFile(path) => Box::new(File::open(path)?),
        })
    }

    fn is_in(&self, path: &Path) -> io::Result<bool> {
        let (mut wanted, mut found) = (BufReader::new(self.open()?), BufReader::new(File::open(path)?));
        loop {
            let (left, right) = (wanted.fill_buf()?, found.fill_buf()?);
            let length = left.len().min(right.len());
            if length == 0 || left[..length] != right[..length] {
                return Ok(left.is_empty() && right.is_empty());
            }
            wanted.consume(length);
            found.consume(length);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_file_that_is_as_it_should_be_stays_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/program");
        let file = |content: Content| InstalledFile {
            path: path.clone(),
            content,
            mode: 0o755,
        };
        let text = |text: &str| file(Content::Text(text.to_owned()));
        let inode = || fs::metadata(&path).unwrap().ino();
        let long = "1".repeat(100_000);
        assert!(!text(&long).is_in_place());
        text(&long).put().unwrap();
        assert!(text(&long).is_in_place());
        let first = inode();
        text(&long).put().unwrap();
        file(Content::OfFile(path.clone())).put().unwrap();
        assert_eq!(inode(), first);
        for other in [&long[1..], "2"] {
            assert!(!text(other).is_in_place());
            text(other).put().unwrap();
            assert_eq!(
                (
                    fs::read_to_string(&path).unwrap().as_str(),
                    fs::metadata(&path).unwrap().mode() & 0o777
                ),
                (other, 0o755)
            );
        }
        let beside = |name: &str| folder.path().join("a").join(name);
        for name in ["program.7.gpu.tmp", "program.x.7.gpu.tmp"] {
            fs::write(beside(name), "").unwrap();
        }
        text("2").put().unwrap();
        assert!(!beside("program.7.gpu.tmp").exists(), "left by one that was killed");
        assert!(beside("program.x.7.gpu.tmp").exists(), "of another file");
        assert_eq!(fs::read_dir(folder.path().join("a")).unwrap().count(), 2);
    }
}
