//! Prints everything about the GPUs of this machine as JSON: inventory, usage, PCI bus.
//!
//! `cargo run -p gpu-core --example node [-- <path of libnvidia-ml.so.1> [<host root>]]`
#![expect(clippy::print_stdout, reason = "it is what the program is for")]

use std::{error::Error, path::PathBuf};

use gpu_core::{
    PciInventory,
    nvml::{Library, LibrarySearch},
};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let search = LibrarySearch {
        library: arguments.next(),
        ..LibrarySearch::default()
    };
    let host_root = arguments.next().unwrap_or_else(|| PathBuf::from("/"));
    let library = Library::open(&search)?;
    let node = json!({
        "inventory": library.inventory(&host_root)?,
        "usage": library.usage(&host_root)?,
        "bus": PciInventory::read(&host_root)?,
    });
    println!("{node:#}");
    Ok(())
}
