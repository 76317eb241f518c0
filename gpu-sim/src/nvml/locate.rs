//! How the library finds its node.

use std::{
    env,
    ffi::{CStr, OsStr, c_void},
    fs,
    io::Write as _,
    mem::MaybeUninit,
    os::unix::ffi::OsStrExt as _,
    path::{self, Path, PathBuf},
};

use super::code::{Answer, Code};
use crate::{
    Error, NodeFile, build_id,
    library::Trailer,
    state::{Record, State},
};

pub(super) enum Found {
    /// The whole node.
    Node(NodeFile, State),
    /// Only what the library itself carries: a container got nothing else.
    Snapshot(NodeFile, Record),
}

/// Finds the node: `GPU_SIM_DIR`, else by the library's own path, else by the trailer. Without any there is no driver.
pub(super) fn locate() -> Answer<Found> {
    debug(|| format!("library of {}", build_id::MARKER));
    let trailer = own_path().and_then(|path| Trailer::read(&path).ok().flatten());
    if let Some(folder) = env::var_os("GPU_SIM_DIR").filter(|folder| !folder.is_empty()) {
        // Absolute, because the process may change its directory.
        return node(&path::absolute(folder).map_err(|_| Code::UNKNOWN)?, trailer.as_ref());
    }
    let path = own_path().ok_or(Code::DRIVER_NOT_LOADED)?;
    if let Some(folder) = node_around(&path) {
        return node(&folder, trailer.as_ref());
    }
    let Some(trailer) = trailer else {
        debug(|| format!("`{}` belongs to no node and GPU_SIM_DIR is not set", path.display()));
        return Err(Code::DRIVER_NOT_LOADED);
    };
    if trailer.node.join(NodeFile::NAME).exists() {
        return node(&trailer.node, Some(&trailer));
    }
    let record = trailer.state.as_deref().map(|state| Record::parse(state, &path));
    let record = record.transpose().map_err(|error| unreadable(&error))?;
    NodeFile::parse(&trailer.node_yaml, &path)
        .map(|node| Found::Snapshot(node, record.unwrap_or_default()))
        .map_err(|error| unreadable(&error))
}

/// The node, unless this library is its own and came with another driver than the one it has now.
fn node(folder: &Path, trailer: Option<&Trailer>) -> Answer<Found> {
    let file = NodeFile::read(&folder.join(NodeFile::NAME)).map_err(|error| unreadable(&error))?;
    let own = trailer
        .filter(|trailer| trailer.node == folder)
        .and_then(Trailer::driver);
    if own.is_some_and(|own| own != file.driver) {
        debug(|| {
            format!(
                "the node has driver {}, this library is of {own:?}: `gpu-sim driver` changes both",
                file.driver
            )
        });
        return Err(Code::LIB_RM_VERSION_MISMATCH);
    }
    Ok(Found::Node(file, State::of(folder)))
}

/// Tells whoever debugs what cannot be read.
pub(super) fn unreadable(error: &Error) -> Code {
    let cause = std::error::Error::source(error)
        .map(|source| format!(": {source}"))
        .unwrap_or_default();
    debug(|| format!("{error}{cause}"));
    Code::UNKNOWN
}

/// A line on stderr for whoever wonders why initialisation fails; silent unless `GPU_SIM_DEBUG` is set.
fn debug(message: impl FnOnce() -> String) {
    if env::var_os("GPU_SIM_DEBUG").is_some_and(|value| !value.is_empty()) {
        let _ = writeln!(std::io::stderr(), "gpu-sim: {}", message());
    }
}

/// The node whose folder the library lies in: as `lib/…` or as `root/usr/lib/<triplet>/…`.
fn node_around(library: &Path) -> Option<PathBuf> {
    let library = library.canonicalize().ok()?;
    let folder = library.parent()?;
    let node = if folder.ends_with("lib") {
        folder.parent()?
    } else {
        folder
            .parent()
            .filter(|lib| lib.ends_with("root/usr/lib"))?
            .ancestors()
            .nth(3)?
    };
    node.join(NodeFile::NAME).exists().then(|| node.to_owned())
}

/// The file this library was loaded from.
fn own_path() -> Option<PathBuf> {
    let inside = own_path as *const c_void;
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` reads no memory at the address and writes the structure it is given.
    let found = unsafe { libc::dladdr(inside, info.as_mut_ptr()) };
    // SAFETY: all zeros are a value of this structure of pointers, and `dladdr` has filled it in or left it.
    let info = unsafe { info.assume_init() };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: it is not null; the loader keeps the name, ended by a zero, as long as the library, which never goes.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    // A relative name held when the library was loaded, and perhaps no longer.
    if path.is_absolute() {
        Some(path.to_owned())
    } else {
        mapped_path(inside.addr())
    }
}

/// The file that the kernel has mapped at an address.
fn mapped_path(address: usize) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        let range = usize::from_str_radix(from, 16).ok()?..usize::from_str_radix(to, 16).ok()?;
        let path = line.find('/').and_then(|at| line.get(at..))?;
        range.contains(&address).then(|| PathBuf::from(path))
    })
}
