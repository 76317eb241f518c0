use std::path::PathBuf;

use super::{FoundFile, found::Search};

/// The sockets of the driver's daemons, each from the first place that has it.
pub(super) fn find(search: &mut Search) -> Vec<FoundFile> {
    let run = ["/run", "/var/run"].map(PathBuf::from);
    let mut found = Vec::new();
    for name in ["nvidia-persistenced/socket", "nvidia-fabricmanager/socket"] {
        found.extend(search.first(&run, name, |_| true));
    }
    // The pipe folder of MPS stands here too and is no file: the vendor's toolkit passes over it likewise.
    found.extend(search.first(&[PathBuf::from("/tmp")], "nvidia-mps", |_| true));
    found
}
