//! The node's GPUs: read when asked, and watched.

use std::{
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use gpu_labels::{
    Node,
    gpu_core::{
        self, Inventory,
        nvml::{Library, LibrarySearch, NodeEvent, WatchConfig, Watcher},
    },
};
use tokio::{
    sync::mpsc::UnboundedSender,
    task::{JoinError, JoinHandle, spawn_blocking},
    time::timeout,
};

/// The driver's library, once it is there, and the watch on what it says.
#[derive(Debug)]
pub(super) struct Hardware {
    search: LibrarySearch,
    host_root: PathBuf,
    /// A library that is being loaded: a driver that hangs is not asked a second time meanwhile.
    opening: Option<(Instant, JoinHandle<gpu_core::Result<Library>>)>,
    library: Option<Arc<Library>>,
    was_read: bool,
    /// Where a change is told; nowhere for a program that ends after one round.
    changes: Option<UnboundedSender<()>>,
    watcher: Option<Watcher>,
}

/// How often the watcher looks: labels follow a change of the MIG layout within five seconds.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

impl Hardware {
    pub(super) fn new(search: LibrarySearch, host_root: &Path, changes: Option<UnboundedSender<()>>) -> Self {
        Self {
            search,
            host_root: host_root.to_owned(),
            opening: None,
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
        let library = match &self.library {
            Some(library) => Arc::clone(library),
            None => Arc::new(self.open().await?),
        };
        let (host_root, asked) = (self.host_root.clone(), Arc::clone(&library));
        let read = spawn_blocking(move || asked.inventory(&host_root)).await;
        // The next round looks for the library anew: the driver may be another one then.
        let inventory = read.unwrap_or_else(panicked).inspect_err(|_| self.close())?;
        self.was_read = true;
        self.watch(&library, &inventory);
        self.library = Some(library);
        Ok(inventory)
    }

    /// A reading limits its calls; loading the library is one that nothing limits but this.
    async fn open(&mut self) -> gpu_core::Result<Library> {
        let search = self.search.clone();
        let start = || (Instant::now(), spawn_blocking(move || Library::open(&search)));
        let (since, opening) = self.opening.get_or_insert_with(start);
        let Ok(opened) = timeout(Library::CALL_TIMEOUT, opening).await else {
            return Err(gpu_core::Error::Hung {
                call: "nvmlInit_v2",
                elapsed: since.elapsed(),
            });
        };
        self.opening = None;
        opened.unwrap_or_else(panicked)
    }

    fn close(&mut self) {
        self.library = None;
        self.watcher = None;
    }

    /// Reads what is around the GPUs.
    pub(super) async fn node(&self, machine_type_file: Option<PathBuf>) -> (Node, Vec<String>) {
        let host_root = self.host_root.clone();
        let read = spawn_blocking(move || Node::read(&host_root, machine_type_file.as_deref()));
        read.await
            .unwrap_or_else(|error| (Node::default(), vec![error.to_string()]))
    }

    fn watch(&mut self, library: &Arc<Library>, inventory: &Inventory) {
        let Some(changes) = self.changes.clone().filter(|_| self.watcher.is_none()) else {
            return;
        };
        let config = WatchConfig {
            host_root: self.host_root.clone(),
            interval: WATCH_INTERVAL,
            ..WatchConfig::default()
        };
        let tell = move |event| match event {
            NodeEvent::Changed { .. } if changes.send(()).is_err() => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        match Watcher::start(Arc::clone(library), inventory.clone(), config, tell) {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) => tracing::warn!("changes are seen only every interval: {error}"),
        }
    }
}

fn panicked<T>(error: JoinError) -> gpu_core::Result<T> {
    Err(gpu_core::Error::Thread(io::Error::other(error)))
}
