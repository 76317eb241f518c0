//! What programs see of a simulated node: everything here goes through the C ABI of a node's own library.

mod events;
mod faults;
mod hardware;
mod inventory;
mod symbols;

use std::path::Path;

use gpu_sim::{Node, NodeSpec};
use nvml_wrapper::Nvml;

/// A node in a folder that goes with it.
struct Simulated {
    node: Node,
    _folder: tempfile::TempDir,
}

impl Simulated {
    fn new(spec: &NodeSpec) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let node = Node::create(spec, folder.path()).expect("a node can be made");
        Self { node, _folder: folder }
    }

    fn nvml(&self) -> Nvml {
        nvml(&self.node.library()).expect("NVML initialises")
    }
}

fn nvml(library: &Path) -> Result<Nvml, nvml_wrapper::error::NvmlError> {
    Nvml::builder().lib_path(library.as_os_str()).init()
}
