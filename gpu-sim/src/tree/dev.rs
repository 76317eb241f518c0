//! Device nodes, with the numbers of the recorded nodes.

use super::Tree;
use crate::{NodeFile, Result};

/// Major number of the GPUs and control nodes.
pub(crate) const NVIDIA: u32 = 195;
/// Minor number of `/dev/nvidiactl`.
pub(crate) const CONTROL: u32 = 255;
pub(super) const IMEX_CHANNELS: u32 = 235;
pub(crate) const CAPABILITIES: u32 = 236;
pub(super) const UVM: u32 = 510;

const MODESET: u32 = 254;

pub(super) fn write(tree: &Tree<'_>, node: &NodeFile) -> Result<()> {
    for gpu in &node.gpus {
        tree.device(&format!("dev/nvidia{}", gpu.minor), NVIDIA, gpu.minor, 0o666)?;
    }
    tree.device("dev/nvidiactl", NVIDIA, CONTROL, 0o666)?;
    tree.device("dev/nvidia-modeset", NVIDIA, MODESET, 0o666)?;
    tree.device("dev/nvidia-uvm", UVM, 0, 0o666)?;
    tree.device("dev/nvidia-uvm-tools", UVM, 1, 0o666)?;
    // Configuring MIG is for root alone, monitoring it for all.
    tree.device("dev/nvidia-caps/nvidia-cap1", CAPABILITIES, 1, 0o400)?;
    tree.device("dev/nvidia-caps/nvidia-cap2", CAPABILITIES, 2, 0o444)
}
