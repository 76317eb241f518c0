//! What CUDA programs see of a simulated node: `cuda-devices` is one.

mod devices;
mod library;
mod mps;

use std::{
    path::Path,
    process::{Command, Output},
};

use gpu_sim::{Node, NodeSpec};

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

    /// `cuda-devices` on this node.
    fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cuda-devices"));
        command
            .env("LD_LIBRARY_PATH", self.node.folder().join("lib"))
            .env("CUDA_MPS_PIPE_DIRECTORY", "/absent")
            .env_remove("CUDA_VISIBLE_DEVICES")
            .env_remove("GPU_SIM_DIR");
        command
    }

    /// What it prints, or why it fails.
    fn devices(&self) -> Result<String, String> {
        result(&self.program().output().expect("it runs"))
    }

    /// The same with `CUDA_VISIBLE_DEVICES`.
    fn visible(&self, devices: &str) -> Result<String, String> {
        let output = self.program().env("CUDA_VISIBLE_DEVICES", devices).output();
        result(&output.expect("it runs"))
    }
}

fn result(output: &Output) -> Result<String, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it prints UTF-8");
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        let error = text(&output.stderr);
        let error = error.trim_end().strip_prefix("cuda-devices: ").map(str::to_owned);
        Err(error.unwrap_or_else(|| format!("{output:?}")))
    }
}

/// The folder of the driver's libraries in the node's tree.
fn libraries(root: &Path) -> std::path::PathBuf {
    root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH))
}
