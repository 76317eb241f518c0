//! Services of the driver that show by a socket.

use super::Node;
use crate::{Result, tree};

/// A service whose socket programs look for, such as those that describe a GPU for containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum Service {
    /// `nvidia-persistenced`: `run/nvidia-persistenced/socket`.
    Persistenced,
    /// `nv-fabricmanager`: `run/nvidia-fabricmanager/socket`.
    Fabricmanager,
}

impl Service {
    /// Beneath the root.
    pub(crate) fn socket(self) -> &'static str {
        match self {
            Self::Persistenced => "run/nvidia-persistenced/socket",
            Self::Fabricmanager => "run/nvidia-fabricmanager/socket",
        }
    }
}

impl Node {
    /// Lets a service of the driver run or not: its socket is there or not. Nobody listens on it. At first none runs.
    ///
    /// # Errors
    /// Where the socket cannot be made or removed.
    pub fn set_service(&self, service: Service, running: bool) -> Result<()> {
        tree::show_service(&self.root(), service, running)
    }
}
