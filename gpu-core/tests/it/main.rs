//! Reading simulated nodes: the NVML code of production on a library with the real C interface.
//!
//! `GPU_CORE_TEST_DRIVER=470 cargo test -p gpu-core --test it` runs it all on a simulated driver of another generation: 470,
//! 535, 550, 580 (which is the default) and 610 are tested.

use std::path::PathBuf;

use gpu_core::nvml::{Library, LibrarySearch};
use gpu_sim::{Node, NodeSpec};
use tempfile::TempDir;

mod boards;
mod broken;
mod compute_mode;
mod control;
mod defects;
mod garbage;
mod health;
mod mig;
mod reading;
mod shim;
mod usage;
mod watcher;

/// A simulated node in a folder that goes with it.
struct Simulated {
    node: Node,
    _folder: TempDir,
}

impl Simulated {
    /// Of the driver generation that the environment names, if it does.
    fn new(spec: &NodeSpec) -> Self {
        match std::env::var("GPU_CORE_TEST_DRIVER") {
            Ok(driver) => Self::exactly(&spec.clone().driver(driver)),
            Err(_) => Self::exactly(spec),
        }
    }

    fn exactly(spec: &NodeSpec) -> Self {
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
