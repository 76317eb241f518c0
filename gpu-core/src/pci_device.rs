use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

use crate::{FileError, PciAddress, PciId, VgpuHost, sysfs};

/// NVIDIA's devices on a node's PCI bus, as the kernel sees them: without NVML, and also where no driver is loaded.
///
/// ```
/// let bus = gpu_core::PciInventory::read("/nonexistent".as_ref())?;
/// assert!(bus.devices.is_empty()); // no PCI bus, no devices
/// # Ok::<(), gpu_core::FileError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PciInventory {
    /// The devices, by address.
    pub devices: Vec<PciDevice>,
    /// What could not be read, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// One device of NVIDIA's on a PCI bus (`/sys/bus/pci/devices/<address>/`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PciDevice {
    /// Where it is.
    pub address: PciAddress,
    /// Vendor and device (`vendor`, `device`).
    pub id: PciId,
    /// Vendor and device of the board (`subsystem_vendor`, `subsystem_device`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subsystem_id: Option<PciId>,
    /// PCI's class, subclass and programming interface (`class`), e.g. 0x030200 for a GPU without a display.
    pub class: u32,
    /// The kernel driver that is bound to it, e.g. `nvidia` or `vfio-pci` (`driver`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The NUMA node of its slot (`numa_node`, absent if negative).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Its IOMMU group (`iommu_group`); absent without an IOMMU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iommu_group: Option<u32>,
    /// The PCIe root complex above it, e.g. `pci0000:64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_root: Option<String>,
    /// The physical device that it is a virtual function of (`physfn`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_function_of: Option<PciAddress>,
    /// The mark of a virtual GPU (`config`), read by the privileged alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vgpu_host: Option<VgpuHost>,
}

impl PciDevice {
    /// Whether it is a GPU: a display or 3D controller.
    pub fn is_gpu(&self) -> bool {
        matches!(self.class >> 8, 0x0300 | 0x0302)
    }

    /// Whether it is an NVSwitch: a bridge of the kind "other".
    pub fn is_nvswitch(&self) -> bool {
        self.class >> 8 == 0x0680
    }

    /// Its name in the PCI ID database, e.g. `GH100 [H200 SXM 141GB]`; `None` where that is older than the device.
    #[cfg(feature = "pci-names")]
    pub fn product(&self) -> Option<&'static str> {
        pci_ids::Device::from_vid_pid(self.id.vendor, self.id.device).map(pci_ids::Device::name)
    }
}

impl PciInventory {
    /// Reads `/sys/bus/pci` beneath `host_root`. A machine without a PCI bus has no devices.
    ///
    /// # Errors
    /// Where the bus cannot be listed. What cannot be read of a device is in [`problems`](Self::problems).
    pub fn read(host_root: &Path) -> Result<Self, FileError> {
        let folder = host_root.join("sys/bus/pci/devices");
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(FileError::new("list", &folder)(error)),
        };
        let mut addresses = Vec::new();
        for entry in entries {
            let name = entry.map_err(FileError::new("list", &folder))?.file_name();
            addresses.extend(name.to_str().and_then(|name| name.parse::<PciAddress>().ok()));
        }
        addresses.sort_unstable();
        let mut inventory = Self::default();
        for address in addresses {
            match read_device(host_root, address, &mut inventory.problems) {
                Ok(device) => inventory.devices.extend(device),
                Err(error) => inventory.problems.push(words(&error)),
            }
        }
        Ok(inventory)
    }

    /// The GPUs, by address; virtual functions included.
    pub fn gpus(&self) -> impl Iterator<Item = &PciDevice> {
        self.devices.iter().filter(|device| device.is_gpu())
    }
}

/// `None` for another vendor's device, and for one that went meanwhile.
fn read_device(
    host_root: &Path,
    address: PciAddress,
    problems: &mut Vec<String>,
) -> Result<Option<PciDevice>, FileError> {
    let folder = sysfs::device(host_root, address);
    let id = |vendor: &str, device: &str| -> Result<Option<PciId>, FileError> {
        let (vendor, device) = (
            sysfs::hexadecimal(&folder, vendor)?,
            sysfs::hexadecimal(&folder, device)?,
        );
        Ok(vendor.zip(device).and_then(|(vendor, device)| {
            Some(PciId {
                vendor: u16::try_from(vendor).ok()?,
                device: u16::try_from(device).ok()?,
            })
        }))
    };
    let Some(pci_id) = id("vendor", "device")?.filter(|id| id.vendor == PciId::NVIDIA) else {
        return Ok(None);
    };
    let Some(class) = sysfs::hexadecimal(&folder, "class")? else {
        return Ok(None);
    };
    let mut or_problem = Listing(problems);
    Ok(Some(PciDevice {
        address,
        id: pci_id,
        subsystem_id: or_problem.of(id("subsystem_vendor", "subsystem_device")),
        class,
        driver: or_problem.of(sysfs::target_name(&folder, "driver")),
        numa_node: or_problem.of(sysfs::numa_node(&folder)),
        iommu_group: or_problem
            .of(sysfs::target_name(&folder, "iommu_group"))
            .and_then(|group| group.parse().ok()),
        pcie_root: or_problem.of(sysfs::pcie_root(&folder)),
        virtual_function_of: or_problem
            .of(sysfs::target_name(&folder, "physfn"))
            .and_then(|address| address.parse().ok()),
        vgpu_host: sysfs::vgpu_host(&folder).unwrap_or_else(|error| {
            or_problem.0.push(format!("{address}: {error}"));
            None
        }),
    }))
}

struct Listing<'a>(&'a mut Vec<String>);

impl Listing<'_> {
    fn of<T>(&mut self, answer: Result<Option<T>, FileError>) -> Option<T> {
        answer.unwrap_or_else(|error| {
            self.0.push(words(&error));
            None
        })
    }
}

fn words(error: &FileError) -> String {
    format!("{error}: {}", error.source)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A host with devices as sysfs shows them: folders beneath their root, links on the bus.
    struct Host(tempfile::TempDir);

    impl Host {
        fn new() -> Self {
            let host = Self(tempfile::tempdir().unwrap());
            for folder in [
                "sys/bus/pci/devices",
                "sys/bus/pci/drivers/vfio-pci",
                "sys/kernel/iommu_groups/27",
            ] {
                fs::create_dir_all(host.0.path().join(folder)).unwrap();
            }
            host
        }

        fn device(&self, address: &str, files: &[(&str, &str)], links: &[(&str, &str)]) {
            let folder = self.0.path().join("sys/devices/pci0000:64").join(address);
            fs::create_dir_all(&folder).unwrap();
            for (file, text) in files {
                fs::write(folder.join(file), format!("{text}\n")).unwrap();
            }
            for (link, target) in links {
                symlink(target, folder.join(link)).unwrap();
            }
            let bus = self.0.path().join("sys/bus/pci/devices").join(address);
            symlink(format!("../../../devices/pci0000:64/{address}"), bus).unwrap();
        }

        fn read(&self) -> PciInventory {
            PciInventory::read(self.0.path()).unwrap()
        }
    }

    const H200: [(&str, &str); 6] = [
        ("vendor", "0x10de"),
        ("device", "0x2335"),
        ("subsystem_vendor", "0x10de"),
        ("subsystem_device", "0x18bf"),
        ("class", "0x030200"),
        ("numa_node", "-1"),
    ];

    #[test]
    fn a_gpu_that_is_given_to_a_virtual_machine_is_seen_with_its_driver_and_group() {
        let host = Host::new();
        let links = [
            ("driver", "../../../bus/pci/drivers/vfio-pci"),
            ("iommu_group", "../../../kernel/iommu_groups/27"),
        ];
        host.device("0000:65:00.0", &H200, &links);
        host.device(
            "0000:64:00.0",
            &[("vendor", "0x8086"), ("device", "0x1234"), ("class", "0x060400")],
            &[],
        );
        let found = host.read();
        assert_eq!(found.problems, [""; 0]);
        let [gpu] = found.devices.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!(
            (gpu.address.to_string(), gpu.id.to_string()),
            ("0000:65:00.0".to_owned(), "10de:2335".to_owned())
        );
        assert_eq!(gpu.driver.as_deref(), Some("vfio-pci"));
        assert_eq!((gpu.iommu_group, gpu.numa_node), (Some(27), None));
        assert_eq!(gpu.pcie_root.as_deref(), Some("pci0000:64"));
        assert!(gpu.is_gpu() && !gpu.is_nvswitch());
        #[cfg(feature = "pci-names")]
        assert_eq!(gpu.product(), Some("GH100 [H200 SXM 141GB]"));
    }

    #[test]
    fn devices_come_by_address_and_are_told_apart() {
        let host = Host::new();
        let with = |class: &'static str| H200.map(|(file, text)| (file, if file == "class" { class } else { text }));
        host.device("0000:b6:00.0", &with("0x068000"), &[]);
        host.device("0000:66:00.0", &H200, &[]);
        host.device("0000:66:00.4", &H200, &[("physfn", "../0000:66:00.0")]);
        let found = host.read();
        let addresses: Vec<_> = found.devices.iter().map(|device| device.address.to_string()).collect();
        assert_eq!(addresses, ["0000:66:00.0", "0000:66:00.4", "0000:b6:00.0"]);
        assert_eq!(found.devices[1].virtual_function_of, Some(found.devices[0].address));
        assert!(found.devices[2].is_nvswitch());
        assert_eq!(found.gpus().count(), 2);
        let text = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<PciInventory>(&text).unwrap(), found);
    }

    #[test]
    fn what_makes_no_sense_is_listed_and_hides_nothing_else() {
        let host = Host::new();
        let odd = H200.map(|(file, text)| (file, if file == "numa_node" { "two" } else { text }));
        host.device("0000:65:00.0", &odd, &[]);
        host.device(
            "0000:66:00.0",
            &[("vendor", "0x10de"), ("device", "ten"), ("class", "0x030200")],
            &[],
        );
        host.device("0000:67:00.0", &H200, &[]);
        let found = host.read();
        assert_eq!(found.devices.len(), 2);
        let [numa, device] = found.problems.as_slice() else {
            panic!("{found:?}")
        };
        assert!(
            numa.ends_with("0000:65:00.0/numa_node`: `two` is not a number"),
            "{numa}"
        );
        assert!(
            device.ends_with("0000:66:00.0/device`: `ten` is not a number"),
            "{device}"
        );
    }
}
