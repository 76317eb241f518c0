//! Reading simulated nodes: the NVML code of production on a library with the real C interface.

use std::path::PathBuf;

use gpu_core::nvml::{Library, LibrarySearch};
use gpu_sim::{Node, NodeSpec};
use tempfile::TempDir;

mod broken;
mod control;
mod health;
mod mig;
mod reading;
mod usage;
mod watcher;

/// A simulated node in a folder that goes with it.
struct Simulated {
    node: Node,
    _folder: TempDir,
}

impl Simulated {
    fn new(spec: &NodeSpec) -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let node = Node::create(spec, folder.path()).expect("a node can be made");
        Self { node, _folder: folder }
    }

    fn library(&self) -> Library {
        open(self.node.library()).expect("NVML initialises")
    }
}

fn open(library: PathBuf) -> gpu_core::Result<Library> {
    Library::open(&LibrarySearch {
        library: Some(library),
        driver_root: None,
    })
}
