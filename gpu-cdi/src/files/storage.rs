use std::path::Path;

use super::{FoundFile, found::Search};

/// What `GPUDirect` Storage reads: udev's database, which tells it the disks, and its own configuration.
pub(super) fn find(search: &mut Search) -> Vec<FoundFile> {
    let udev = search.folder(Path::new("/run/udev"));
    let configuration = search.file(Path::new("/etc/cufile.json"), |_| true);
    udev.into_iter().chain(configuration).collect()
}
