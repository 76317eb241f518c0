//! Parsers that are not public, for the targets in `fuzz/`: no part of the API.

use std::path::Path;

use super::{Container, cuda_compat, ld_so_conf, state};
use crate::{elf, files};

/// Reads an ELF file in all ways; the SONAME.
pub fn elf(content: &[u8]) -> Option<String> {
    let _ = elf::note(
        content,
        cuda_compat::NOTE.0,
        cuda_compat::NOTE.1,
        cuda_compat::NOTE_LIMIT,
    );
    let _ = elf::has_interpreter(content);
    elf::soname(content).ok().flatten()
}

/// The paths in a loader's cache.
pub fn ld_cache(content: &[u8]) -> Vec<String> {
    files::cached_libraries(content).unwrap_or_default()
}

/// Reads the loader's configuration of the container at `root`.
///
/// # Panics
/// If there is no such folder.
pub fn ld_so_conf(root: &Path) {
    let container = Container::open(root).expect("a folder");
    let _ = ld_so_conf::listed(&container);
}

/// Reads the state of a container.
pub fn state(text: &[u8]) {
    let _ = state::container_root(None, text);
}
