//! The device nodes that the driver makes only when a program of its own is run.

use crate::{
    device_nodes::{self, Node},
    program::print,
};

use super::arguments::Arguments;

/// Which of the nodes are meant.
#[derive(Debug, Clone, Copy)]
pub(super) enum Nodes {
    /// Those that every program needs.
    Control,
    /// Those of the MIG instances that there are: a container without them sees no MIG device.
    Mig,
}

impl Nodes {
    /// Makes those that are missing. What cannot be made is logged: the driver's own program may do better.
    pub(super) fn make(self, arguments: &Arguments) {
        let dev_root = arguments.dev_root_here();
        for node in self.of(arguments) {
            match device_nodes::create(&node, &dev_root) {
                Ok(true) => tracing::info!("made `{}`", node.path),
                Ok(false) => {}
                Err(error) => tracing::warn!("cannot make `{}`: {error}", node.path),
            }
        }
    }

    /// Those that are missing, and would be made.
    pub(super) fn missing(self, arguments: &Arguments) -> Vec<Node> {
        let dev_root = arguments.dev_root_here();
        let mut nodes = self.of(arguments);
        nodes.retain(|node| device_nodes::is_missing(node, &dev_root).unwrap_or(false));
        nodes
    }

    /// Says which would be made, and which could not be.
    pub(super) fn announce(self, arguments: &Arguments) -> anyhow::Result<()> {
        let dev_root = arguments.dev_root_here();
        for node in self.of(arguments) {
            match device_nodes::is_missing(&node, &dev_root) {
                Ok(true) => print(format_args!(
                    "would make `{}` (character device {}:{}, mode {:o})\n",
                    device_nodes::here(&node, &dev_root).display(),
                    node.major,
                    node.minor,
                    node.mode
                ))?,
                Ok(false) => {}
                Err(error) => tracing::warn!("cannot make `{}`: {error}", node.path),
            }
        }
        Ok(())
    }

    fn of(self, arguments: &Arguments) -> Vec<Node> {
        if !arguments.creates_control_nodes() {
            return Vec::new();
        }
        match self {
            Self::Control => device_nodes::control(&arguments.host_root),
            Self::Mig => device_nodes::mig(&arguments.host_root),
        }
    }
}
