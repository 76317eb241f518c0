//! A link by device number, as in `/dev/char`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::device_nodes::{self, Node};

#[derive(Debug)]
pub(super) struct Link {
    pub(super) path: PathBuf,
    pub(super) target: PathBuf,
}

impl Link {
    /// The link in `folder` to a node in the `dev` of this root.
    pub(super) fn to(node: &Node, dev_root: &Path, folder: &Path) -> Self {
        Self {
            path: folder.join(format!("{}:{}", node.major, node.minor)),
            target: device_nodes::here(node, dev_root),
        }
    }

    /// Whether the link is to be made: it is not there, or leads elsewhere.
    pub(super) fn is_missing(&self) -> io::Result<bool> {
        match fs::read_link(&self.path) {
            Ok(found) => Ok(found != self.target),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            // What is no link is nobody's to replace.
            Err(error) => Err(error),
        }
    }

    /// Makes the link, in the place of one that leads elsewhere; whether there was anything to do.
    pub(super) fn make(&self) -> io::Result<bool> {
        if !self.is_missing()? {
            return Ok(false);
        }
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let temporary = self.path.with_extension("gpuctl");
        let made =
            std::os::unix::fs::symlink(&self.target, &temporary).and_then(|()| fs::rename(&temporary, &self.path));
        if made.is_err() {
            // Best effort: the first error is the one to report.
            let _ = fs::remove_file(&temporary);
        }
        made.map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_elsewhere_is_replaced_and_a_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let link = |path: &str, target: &str| Link {
            path: folder.path().join(path),
            target: target.into(),
        };
        let first = link("char/195:0", "/dev/nvidia1");
        assert!(first.is_missing().unwrap() && first.make().unwrap());
        let second = link("char/195:0", "/dev/nvidia0");
        assert!(second.is_missing().unwrap() && second.make().unwrap());
        assert!(!second.is_missing().unwrap() && !second.make().unwrap());
        assert_eq!(fs::read_link(&second.path).unwrap(), Path::new("/dev/nvidia0"));
        assert_eq!(fs::read_dir(folder.path().join("char")).unwrap().count(), 1);
        let file = link("file", "/dev/nvidia0");
        fs::write(&file.path, "").unwrap();
        assert!(file.is_missing().is_err() && file.make().is_err());
    }
}
