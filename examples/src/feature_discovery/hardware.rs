//! The node's GPUs: read when asked, and watched.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use gpu_labels::{
    Node,
    gpu_core::{
        self, Inventory,
        nvml::{Library, LibrarySearch, Parts, Watcher},
    },
};
use tokio::{sync::mpsc::UnboundedSender, task::spawn_blocking};

use crate::changes::watch;

/// The driver's library, once it is there, and the watch on what it says.
#[derive(Debug)]
pub(super) struct Hardware {
    search: LibrarySearch,
    host_root: PathBuf,
    library: Option<Arc<Library>>,
    was_read: bool,
    /// Where a change is told; nowhere for a program that ends after one round.
    changes: Option<UnboundedSender<()>>,
    watcher: Option<Watcher>,
}

impl Hardware {
    pub(super) fn new(search: LibrarySearch, host_root: &Path, changes: Option<UnboundedSender<()>>) -> Self {
        Self {
            search,
            host_root: host_root.to_owned(),
            library: None,
            was_read: false,
            changes,
            watcher: None,
        }
    }

    /// Looks for the driver's library here from now on.
    pub(super) fn search(&mut self, search: LibrarySearch) {
        if self.search != search {
            self.search = search;
            self.close();
        }
    }

    /// Whether the GPUs could be read at least once.
    pub(super) fn was_read(&self) -> bool {
        self.was_read
    }

    /// Reads all GPUs, away from the threads that must not wait: a driver may hang.
    pub(super) async fn inventory(&mut self) -> gpu_core::Result<Inventory> {
        let (search, host_root, open) = (self.search.clone(), self.host_root.clone(), self.library.clone());
        let changes = self.changes.clone().filter(|_| self.watcher.is_none());
        let read = spawn_blocking(move || {
            let library = match open {
                Some(library) => library,
                None => Arc::new(Library::open(&search)?.with_parts(Parts::DEVICES)),
            };
            let inventory = library.inventory(&host_root)?;
            let watcher = changes.and_then(|changes| {
                watch(&library, &inventory, host_root, changes)
                    .inspect_err(|error| tracing::warn!("changes are seen only every interval: {error}"))
                    .ok()
            });
            Ok((library, inventory, watcher))
        });
        let read = read.await.map_err(io::Error::other).map_err(gpu_core::Error::Thread);
        // The next round looks for the library anew: the driver may be another one then.
        let (library, inventory, watcher) = read.flatten().inspect_err(|_| self.close())?;
        self.was_read = true;
        self.library = Some(library);
        if watcher.is_some() {
            self.watcher = watcher;
        }
        Ok(inventory)
    }

    fn close(&mut self) {
        let closed = (self.watcher.take(), self.library.take());
        // To shut the library down is a call into the driver, too.
        spawn_blocking(move || drop(closed));
    }

    /// Reads what is around the GPUs.
    pub(super) async fn node(&self, machine_type_file: Option<PathBuf>) -> (Node, Vec<String>) {
        let host_root = self.host_root.clone();
        let read = spawn_blocking(move || Node::read(&host_root, machine_type_file.as_deref()));
        read.await
            .unwrap_or_else(|error| (Node::default(), vec![error.to_string()]))
    }
}
