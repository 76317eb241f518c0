use std::{fs, io, path::Path};

use gpu_core::{PciDevice, PciInventory, VgpuHost, read_start};

use super::{Node, PciFunction, Vgpu};

/// More than any firmware's name for its machine; longer files are something else.
const LONGEST_MACHINE: usize = 4096;

impl Node {
    /// Reads a node: its machine's type of a file, and its PCI bus below `host_root`.
    ///
    /// What cannot be read is `None` in the node, and the reasons are in the list beside it.
    pub fn read(host_root: &Path, machine_type_file: Option<&Path>) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let machine = machine_type_file.and_then(|path| match machine(path) {
            Ok(machine) => Some(machine),
            Err(error) => {
                problems.push(format!(
                    "cannot read the machine's type of `{}`: {error}",
                    path.display()
                ));
                None
            }
        });
        let pci = match bus(host_root) {
            Ok(bus) => {
                problems.extend(bus.problems);
                Some(bus.devices.iter().map(|device| function(host_root, device)).collect())
            }
            Err(problem) => {
                problems.push(problem);
                None
            }
        };
        let node = Self {
            machine,
            pci,
            timestamp: None,
        };
        (node, problems)
    }
}

fn machine(path: &Path) -> io::Result<String> {
    let bytes = read_start(path, LONGEST_MACHINE)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// A machine without a PCI bus has others. One on which there are none is not seen: its `/sys` is missing here.
fn bus(host_root: &Path) -> Result<PciInventory, String> {
    let buses = host_root.join("sys/bus");
    fs::metadata(&buses).map_err(|error| format!("cannot look for PCI devices in `{}`: {error}", buses.display()))?;
    PciInventory::read(host_root).map_err(|error| format!("{error}: {}", error.source))
}

fn function(host_root: &Path, device: &PciDevice) -> PciFunction {
    let folder = host_root.join(format!("sys/bus/pci/devices/{}", device.address));
    PciFunction {
        address: device.address,
        id: device.id,
        class: device.class,
        vgpu: vgpu(&folder.join("config")),
    }
}

/// Tells no mark from one that is out of sight, which [`PciDevice`] does not.
fn vgpu(path: &Path) -> Vgpu {
    match read_start(path, VgpuHost::CONFIG_SIZE) {
        Ok(config) if config.len() < VgpuHost::CONFIG_SIZE => Vgpu::Unknown {
            reason: format!("`{}` shows {} bytes to this process", path.display(), config.len()),
        },
        Ok(config) => match VgpuHost::parse(&config) {
            Ok(Some(host)) => Vgpu::Yes(host),
            Ok(None) => Vgpu::No,
            Err(error) => Vgpu::Unknown {
                reason: error.to_string(),
            },
        },
        Err(error) => Vgpu::Unknown {
            reason: format!("cannot read `{}`: {error}", path.display()),
        },
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a node is made")]
mod tests {
    use std::{os::unix::fs::symlink, path::PathBuf};

    use super::*;

    /// A device as sysfs shows it: a folder, and a link on the bus.
    fn add_empty(root: &Path, address: &str) -> PathBuf {
        let folder = root.join("sys/devices/pci0000:00").join(address);
        let bus = root.join("sys/bus/pci/devices");
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(&bus).unwrap();
        symlink(format!("../../../devices/pci0000:00/{address}"), bus.join(address)).unwrap();
        folder
    }

    fn add(root: &Path, address: &str, class: &str, vendor: &str, config: &[u8]) {
        let folder = add_empty(root, address);
        fs::write(folder.join("vendor"), format!("{vendor}\n")).unwrap();
        fs::write(folder.join("device"), "0x2335\n").unwrap();
        fs::write(folder.join("class"), format!("{class}\n")).unwrap();
        fs::write(folder.join("config"), config).unwrap();
    }

    #[test]
    fn a_node_is_read_of_its_files_and_what_fails_is_named() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        add(root, "0000:4b:00.0", "0x030200", "0x10de", &[0; 256]);
        add(root, "0000:1a:00.0", "0x030000", "0x10de", &[0; 64]);
        add(root, "0000:00:1f.0", "0x060100", "0x8086", &[0; 256]);
        add_empty(root, "0000:5a:00.0"); // half gone
        fs::write(root.join("name"), "Some Server\n").unwrap();

        let (node, problems) = Node::read(root, Some(&root.join("name")));
        assert_eq!(problems, [""; 0]);
        assert_eq!(node.machine.as_deref(), Some("Some Server"));
        let functions = node.pci.unwrap();
        let seen: Vec<_> = functions.iter().map(|f| (f.address.to_string(), f.class)).collect();
        assert_eq!(
            seen,
            [
                ("0000:1a:00.0".to_owned(), 0x03_00_00),
                ("0000:4b:00.0".to_owned(), 0x03_02_00)
            ]
        );
        assert!(
            matches!(&functions[0].vgpu, Vgpu::Unknown { reason } if reason.ends_with("shows 64 bytes to this process"))
        );
        assert_eq!(functions[1].vgpu, Vgpu::No);

        let (node, problems) = Node::read(&root.join("nowhere"), Some(&root.join("other")));
        assert_eq!(node, Node::default());
        assert!(problems[0].contains("other`: "), "{problems:?}");
        assert!(problems[1].contains("nowhere/sys/bus`: "), "{problems:?}");
    }

    #[test]
    fn a_machine_without_a_pci_bus_has_no_functions() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("sys/bus/usb")).unwrap();
        let (node, problems) = Node::read(root.path(), None);
        assert_eq!((node.pci, problems), (Some(Vec::new()), Vec::new()));
    }

    #[test]
    fn what_cannot_be_read_any_more_is_as_it_was() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        add(root, "0000:4b:00.0", "0x030200", "0x10de", &[0; 256]);
        fs::write(root.join("name"), "Some Server").unwrap();
        let read = || Node::read(root, Some(&root.join("name"))).0;
        let first = read();
        fs::rename(root.join("sys"), root.join("away")).unwrap();
        fs::remove_file(root.join("name")).unwrap();
        assert_eq!(read(), Node::default());
        assert_eq!(read().or(&first), first);
        fs::write(root.join("name"), "Another").unwrap();
        assert_eq!(read().or(&first).machine.as_deref(), Some("Another"));
    }

    #[test]
    fn a_machine_file_that_is_none_is_named_and_not_waited_for() {
        #[track_caller]
        fn check(path: &str, expected: &str) {
            let (node, problems) = Node::read(Path::new("/"), Some(Path::new(path)));
            assert_eq!(node.machine, None);
            assert!(problems[0].ends_with(expected), "{problems:?}");
        }
        check("/dev/zero", "`/dev/zero`: not a regular file");
        check("/", "`/`: not a regular file");
        check("/nowhere", "`/nowhere`: No such file or directory (os error 2)");
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("long");
        fs::write(&long, vec![0xff; 1 << 16]).unwrap();
        let machine = Node::read(Path::new("/nowhere"), Some(&long)).0.machine.unwrap();
        assert_eq!(machine.chars().count(), 4096);
    }
}
