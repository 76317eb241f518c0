use std::collections::BTreeMap;

use super::command::{Gpu, MemoryLimit, Percentage};

/// What new clients and servers get unless told otherwise.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) percentage: Percentage,
    pub(super) memory: BTreeMap<Gpu, MemoryLimit>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            percentage: Percentage::ALL,
            memory: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// What a server of these settings says of them when it starts, in the vendor's words.
    pub(super) fn lines(&self) -> Vec<String> {
        let limit = |(gpu, limit): (&Gpu, &MemoryLimit)| {
            format!(
                "Device pinned memory limit for device {gpu} set to {:#x} bytes",
                limit.bytes
            )
        };
        let mut lines = vec![format!("Active Threads Percentage set to {}", self.percentage)];
        lines.extend(self.memory.iter().map(limit));
        lines
    }
}
