use std::path::{Path, PathBuf};

use super::names::CONTAINER_ROOT;
use crate::config::ResourceName;

/// The folder in which daemon, device plugin and clients meet: `/run/nvidia/mps` on the host, as a rule, and `/mps` in
/// containers.
///
/// It holds a folder for each resource, `/mps/nvidia.com/gpu`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Root {
    /// The root at a path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where daemon and clients of a resource meet.
    pub fn pipe(&self, resource: &ResourceName) -> PathBuf {
        self.of(resource).join("pipe")
    }

    /// Where the daemon of a resource logs.
    pub fn log(&self, resource: &ResourceName) -> PathBuf {
        self.of(resource).join("log")
    }

    /// The file that is there while the daemon of a resource serves, with an [`Agreement`](super::Agreement) in it.
    pub fn started(&self, resource: &ResourceName) -> PathBuf {
        self.of(resource).join(".started")
    }

    /// The file that is there while every daemon serves.
    pub fn ready(&self) -> PathBuf {
        self.0.join(".ready")
    }

    /// What clients and servers have as `/dev/shm`.
    pub fn shared_memory(&self) -> PathBuf {
        self.0.join("shm")
    }

    fn of(&self, resource: &ResourceName) -> PathBuf {
        self.0.join(resource.as_str())
    }
}

impl Default for Root {
    /// [`CONTAINER_ROOT`].
    fn default() -> Self {
        Self::new(CONTAINER_ROOT)
    }
}
