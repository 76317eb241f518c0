//! What the kernel says of a PCI device, in files.

use std::path::{Path, PathBuf};

use crate::{
    FileError, ParseVgpuError, PciAddress, VgpuHost,
    file::{PAGE, link, read, read_start},
};

/// The device's folder beneath the host's root.
pub(crate) fn device(host_root: &Path, address: PciAddress) -> PathBuf {
    host_root.join(format!("sys/bus/pci/devices/{address}"))
}

/// The name of the PCIe root complex in the path that the device's folder leads to; `None` without such a device.
pub(crate) fn pcie_root(device: &Path) -> Result<Option<String>, FileError> {
    let Some(target) = link(device)? else { return Ok(None) };
    let mut parts = target.components().filter_map(|part| part.as_os_str().to_str());
    let root = parts.find(|part| part.strip_prefix("pci").is_some_and(|rest| rest.contains(':')));
    Ok(root.map(ToOwned::to_owned))
}

/// The NUMA node of the slot; `None` where the machine does not say (-1), or there is no such file.
pub(crate) fn numa_node(device: &Path) -> Result<Option<u32>, FileError> {
    number(device, "numa_node", |text| text.parse::<i64>().ok())
        .map(|node| node.and_then(|node| u32::try_from(node).ok()))
}

/// The mark of a vGPU host. A caller that may not read it is as one that reads 64 bytes: the mark is out of its sight.
pub(crate) fn vgpu_host(device: &Path) -> Result<Option<VgpuHost>, ParseVgpuError> {
    match read_start(&device.join("config"), VgpuHost::CONFIG_SIZE) {
        Ok(config) => VgpuHost::parse(&config),
        Err(_) => Ok(None),
    }
}

/// A number such as `0x10de`.
pub(crate) fn hexadecimal(device: &Path, file: &str) -> Result<Option<u32>, FileError> {
    number(device, file, |text| {
        u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    })
}

/// The last part of where a link in the device's folder leads: its driver, its IOMMU group.
pub(crate) fn target_name(device: &Path, file: &str) -> Result<Option<String>, FileError> {
    let target = link(&device.join(file))?;
    Ok(target.and_then(|target| Some(target.file_name()?.to_str()?.to_owned())))
}

fn number<T>(device: &Path, file: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, FileError> {
    let path = device.join(file);
    let Some(text) = read(&path, PAGE)? else {
        return Ok(None);
    };
    let text = text.trim();
    let wrong = || FileError::new("read", &path)(std::io::Error::other(format!("`{text}` is not a number")));
    parse(text).map(Some).ok_or_else(wrong)
}
