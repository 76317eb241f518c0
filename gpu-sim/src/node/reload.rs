//! Loading another driver.

use std::{fs, io::Write as _};

use super::Node;
use crate::{
    Error, NodeFile, Result, driver,
    library::{Trailer, library},
    replace::replace,
    tree,
};

impl Node {
    /// Loads another driver version: the kernel's part and the files of the user-space part.
    ///
    /// Programs that have the old library loaded are told that driver and library differ
    /// (`NVML_ERROR_LIB_RM_VERSION_MISMATCH`, 18) until they load the new one. The new library lacks the functions that
    /// came after its version. It is made from what [`library`](crate::library()) finds.
    ///
    /// # Errors
    /// Where the version is not simulated, the library is not there, or a file cannot be written.
    pub fn load_driver(&mut self, version: &str) -> Result<()> {
        let (old, text) = self.set_driver(version)?;
        let library = library()?;
        let trailer = Trailer {
            node: self.folder.clone(),
            node_yaml: text.clone(),
            state: None,
        };
        let lacks = self.lacks()?;
        self.state.change(&self.file, |record| {
            trailer.write_copy(&library, &self.library(), &lacks)?;
            tree::change_driver(&self.root(), &self.file, record, &old, |copy| {
                trailer.write_copy(&library, copy, &lacks)
            })?;
            self.write_cuda(&library)?;
            self.state.publish(&self.file, record)?;
            record.driver = Some(self.file.driver.clone());
            self.write_file(&text)
        })
    }

    /// Loads another version of the driver's part in the kernel alone: the libraries there no longer fit, and say so.
    ///
    /// # Errors
    /// Where the version is not simulated, or a file cannot be written.
    pub fn load_kernel_driver(&mut self, version: &str) -> Result<()> {
        let (_, text) = self.set_driver(version)?;
        self.state.change(&self.file, |record| {
            tree::change_kernel_driver(&self.root(), &self.file, record)?;
            record.driver = Some(self.file.driver.clone());
            self.write_file(&text)
        })
    }

    /// Notes the version; answers the old one and what `node.yaml` is to hold, comments and all.
    fn set_driver(&mut self, version: &str) -> Result<(String, String)> {
        let new = driver::find(version)?.version;
        let path = self.folder.join(NodeFile::NAME);
        let text = fs::read_to_string(&path).map_err(Error::read(path))?;
        let line = |line: &str| {
            if line.starts_with("driver:") {
                format!("driver: {new}\n")
            } else {
                line.to_owned()
            }
        };
        let text = text.split_inclusive('\n').map(line).collect();
        let old = std::mem::replace(&mut self.file.driver, new.to_owned());
        Ok((old, text))
    }

    /// Replaces `node.yaml` as a whole.
    fn write_file(&self, text: &str) -> Result<()> {
        replace(&self.folder.join(NodeFile::NAME), |file| {
            file.write_all(text.as_bytes())
        })
    }

    /// Which functions the library of the node's driver lacks.
    pub(super) fn lacks(&self) -> Result<impl Fn(&str) -> bool + use<>> {
        let driver = driver::find(&self.file.driver)?;
        Ok(|name: &str| driver.lacks(name))
    }
}
