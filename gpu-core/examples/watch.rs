//! Prints what happens to the GPUs of this machine, until it is killed.
//!
//! `cargo run -p gpu-core --example watch [-- <path of libnvidia-ml.so.1> [<host root>]]`
#![expect(clippy::print_stdout, reason = "it is what the program is for")]

use std::{error::Error, ops::ControlFlow, path::PathBuf, sync::Arc, thread};

use gpu_core::nvml::{Library, LibrarySearch, NodeEvent, WatchConfig, Watcher};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let search = LibrarySearch {
        library: arguments.next(),
        ..LibrarySearch::default()
    };
    let mut config = WatchConfig::default();
    config.host_root = arguments.next().unwrap_or(config.host_root);
    let library = Arc::new(Library::open(&search)?);
    let inventory = library.inventory(&config.host_root)?;
    println!("{} GPUs, {} problems", inventory.gpus.len(), inventory.problems.len());
    let _watcher = Watcher::start(library, inventory, config, |event| {
        match event {
            NodeEvent::Changed { changes, .. } => changes.iter().for_each(|change| println!("{change}")),
            NodeEvent::Health(event) => println!("{} {:?}", event.gpu, event.kind),
            NodeEvent::Interrupted(error) => println!("{error}"),
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    loop {
        thread::park();
    }
}
