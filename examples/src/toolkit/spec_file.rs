//! A CDI file that is to be on the node, or to be gone.

use std::{fs, io, path::PathBuf};

use anyhow::Context as _;
use gpu_cdi::Spec;

use crate::program::print;

/// A CDI file and what it is to hold.
#[derive(Debug)]
pub(super) struct SpecFile {
    pub(super) path: PathBuf,
    /// `None` if the node has nothing of the kind: a file of earlier days would have containers fail later.
    pub(super) spec: Option<Spec>,
}

impl SpecFile {
    /// Writes or removes the file, if it is another one; whether it was.
    pub(super) fn put(&self) -> anyhow::Result<bool> {
        let path = self.path.display();
        match &self.spec {
            Some(_) if self.is_in_place() => return Ok(false),
            Some(spec) => {
                spec.write(&self.path).context("cannot describe the node")?;
                tracing::info!("wrote `{path}`");
            }
            None => match fs::remove_file(&self.path) {
                Ok(()) => tracing::info!("removed `{path}`"),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(error).with_context(|| format!("cannot remove `{path}`")),
            },
        }
        Ok(true)
    }

    /// Says what would become of the file; nothing of one that is not there and is not to be.
    pub(super) fn announce(&self) -> anyhow::Result<()> {
        let path = self.path.display();
        match &self.spec {
            Some(_) if self.is_in_place() => print(format_args!("would leave `{path}` as it is\n")),
            Some(spec) => print(format_args!("would write `{path}` ({})\n", spec.kind)),
            None if self.path.symlink_metadata().is_ok() => print(format_args!("would remove `{path}`\n")),
            None => Ok(()),
        }
    }

    fn is_in_place(&self) -> bool {
        self.spec.is_some() && Spec::read(&self.path).ok() == self.spec
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_says_the_same_is_not_written_again_and_one_of_nothing_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let device = r#"{"name": "0", "containerEdits": {"env": ["A=1"]}}"#;
        let text = format!(r#"{{"cdiVersion": "0.5.0", "kind": "v.com/c", "devices": [{device}]}}"#);
        fs::write(&path, &text).unwrap();
        let spec = Some(Spec::read(&path).unwrap());
        let mut file = SpecFile {
            path: path.clone(),
            spec,
        };
        assert!(!file.put().unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "not even its layout");
        fs::write(&path, "{}").unwrap();
        assert!(file.put().unwrap());
        assert!(file.is_in_place());
        file.spec = None;
        assert!(file.put().unwrap());
        assert!(!file.put().unwrap());
        assert!(!path.exists());
    }
}
