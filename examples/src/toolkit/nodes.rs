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
    /// Makes those that are missing.
    pub(super) fn make(self, arguments: &Arguments) {
        device_nodes::make(&self.of(arguments), &arguments.dev_root_here());
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
            let path = device_nodes::here(&node, &dev_root);
            match device_nodes::is_missing(&node, &dev_root) {
                Ok(true) => print(format_args!(
                    "would make `{}` (character device {}:{}, mode {:o})\n",
                    path.display(),
                    node.major,
                    node.minor,
                    node.mode
                ))?,
                Ok(false) => {}
                Err(error) => tracing::warn!("cannot make `{}`: {error}", path.display()),
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
