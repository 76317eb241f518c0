//! The node's GPUs: read when asked, watched, and their compute modes.

use std::{path::PathBuf, sync::Arc};

use gpu_core::{
    Inventory,
    nvml::{Library, LibrarySearch, Parts, Watcher},
};
use tokio::sync::mpsc::UnboundedSender;

use crate::changes::watch;

/// The driver's library and the watch on what it says.
pub(super) struct Node {
    library: Arc<Library>,
    host_root: PathBuf,
    _watcher: Option<Watcher>,
}

impl Node {
    /// Opens the library and watches the GPUs from here on; away from the threads that must not wait, since a driver may hang.
    pub(super) async fn open(
        search: LibrarySearch,
        host_root: PathBuf,
        changes: UnboundedSender<()>,
    ) -> anyhow::Result<(Self, Inventory)> {
        let open = move || {
            let library = Arc::new(Library::open(&search)?.with_parts(Parts::DEVICES));
            let inventory = library.inventory(&host_root)?;
            let watcher = watch(&library, &inventory, host_root.clone(), changes);
            let watcher = watcher
                .inspect_err(|error| tracing::warn!("changes of the GPUs are not seen: {error}"))
                .ok();
            let node = Self {
                library,
                host_root,
                _watcher: watcher,
            };
            anyhow::Ok((node, inventory))
        };
        tokio::task::spawn_blocking(open).await?
    }

    pub(super) async fn inventory(&self) -> anyhow::Result<Inventory> {
        let (library, host_root) = (Arc::clone(&self.library), self.host_root.clone());
        Ok(tokio::task::spawn_blocking(move || library.inventory(&host_root)).await??)
    }

    pub(super) fn library(&self) -> &Arc<Library> {
        &self.library
    }
}
