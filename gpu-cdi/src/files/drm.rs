use std::{collections::BTreeMap, path::Path};

use gpu_core::PciAddress;

use super::{driver_libraries::add_link, found::Search};

/// The DRM nodes of every PCI device that has some.
pub(super) fn find(sys: &mut Search) -> BTreeMap<PciAddress, Vec<String>> {
    let devices = Path::new("/sys/bus/pci/devices");
    let mut found = BTreeMap::new();
    for name in sys.list(devices).iter() {
        let Ok(address) = name.parse::<PciAddress>() else {
            continue;
        };
        let nodes = sys.list(&devices.join(name).join("drm"));
        let nodes = nodes
            .iter()
            .filter(|node| node.starts_with("card") || node.starts_with("renderD"));
        let nodes: Vec<_> = nodes.cloned().collect();
        if !nodes.is_empty() {
            found.insert(address, nodes);
        }
    }
    found
}

/// The links that name DRM nodes by PCI address.
pub(super) fn by_path_links(dev: &mut Search) -> BTreeMap<String, String> {
    let dir = Path::new("/dev/dri/by-path");
    let mut links = BTreeMap::new();
    for name in dev.list(dir).iter() {
        add_link(dev, &dir.join(name), &mut links);
    }
    links
}
