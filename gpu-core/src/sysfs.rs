//! What the kernel says of a PCI device, in files.

use std::{fs, io, path::Path};

/// The name of the PCIe root complex in the path that `/sys/bus/pci/devices/<address>` leads to; `None` without such a device.
pub(crate) fn pcie_root(device: &Path) -> io::Result<Option<String>> {
    let target = match fs::read_link(device) {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let root = target
        .components()
        .filter_map(|part| part.as_os_str().to_str())
        .find(|part| part.strip_prefix("pci").is_some_and(|rest| rest.contains(':')));
    Ok(root.map(ToOwned::to_owned))
}
