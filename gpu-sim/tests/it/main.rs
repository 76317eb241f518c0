//! What programs see of a simulated node: everything here goes through the C ABI of a node's own library.

mod abi;
mod calls;
mod command;
mod container;
mod driver;
mod driver_root;
mod drivers;
mod events;
mod faults;
mod hardware;
mod imex;
mod inventory;
mod load;
mod mig;
mod mps;
mod smi;
mod symbols;
mod templates;

use std::{
    io,
    path::Path,
    process::{Command, Output},
};

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

/// Runs a program of a node. For a moment a process that another test starts may hold the program open for writing, as it
/// has inherited that from the thread that made the node; then it is tried again.
fn output(command: &mut Command) -> Output {
    loop {
        match command.output() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            done => return done.expect("the program runs"),
        }
    }
}
