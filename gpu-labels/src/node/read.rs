use std::{fs, io, path::Path};

use gpu_core::{PciId, VgpuHost};

use super::{Node, PciFunction, Vgpu};

impl Node {
    /// Reads a node: its machine's type of a file, and its PCI bus below `host_root`.
    ///
    /// What cannot be read is `None` in the node, and the reasons are in the list beside it.
    pub fn read(host_root: &Path, machine_type_file: Option<&Path>) -> (Self, Vec<io::Error>) {
        let mut problems = Vec::new();
        let mut noted = |path: &Path, error: io::Error| {
            let message = format!("cannot read `{}`: {error}", path.display());
            problems.push(io::Error::new(error.kind(), message));
        };
        let machine = machine_type_file.and_then(|path| match fs::read(path) {
            Ok(bytes) => Some(String::from_utf8_lossy(&bytes).trim().to_owned()),
            Err(error) => {
                noted(path, error);
                None
            }
        });
        let bus = host_root.join("sys/bus/pci/devices");
        let pci = match functions(&bus) {
            Ok(functions) => Some(functions),
            // A machine without a PCI bus has none of its functions.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Vec::new()),
            Err(error) => {
                noted(&bus, error);
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

fn functions(bus: &Path) -> io::Result<Vec<PciFunction>> {
    let mut functions = Vec::new();
    for entry in fs::read_dir(bus)? {
        // One that is being unplugged has no files any more.
        functions.extend(function(&entry?.path()));
    }
    functions.sort_by_key(|function| function.address);
    Ok(functions)
}

fn function(folder: &Path) -> Option<PciFunction> {
    let address = folder.file_name()?.to_str()?.parse().ok()?;
    let number = |name: &str| {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
    };
    let vendor = u16::try_from(number("vendor")?).ok()?;
    if vendor != PciId::NVIDIA {
        return None;
    }
    Some(PciFunction {
        address,
        id: PciId {
            vendor,
            device: u16::try_from(number("device")?).ok()?,
        },
        class: number("class")?,
        vgpu: vgpu(&folder.join("config")),
    })
}

fn vgpu(path: &Path) -> Vgpu {
    match fs::read(path) {
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
mod tests {
    use super::*;

    fn add(root: &Path, address: &str, class: &str, vendor: &str, config: &[u8]) {
        let folder = root.join("sys/bus/pci/devices").join(address);
        fs::create_dir_all(&folder).unwrap();
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
        fs::create_dir_all(root.join("sys/bus/pci/devices/0000:5a:00.0")).unwrap(); // half gone
        fs::write(root.join("name"), "Some Server\n").unwrap();

        let (node, problems) = Node::read(root, Some(&root.join("name")));
        assert!(problems.is_empty());
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
        assert_eq!(
            node,
            Node {
                pci: Some(Vec::new()),
                ..Node::default()
            }
        );
        assert!(problems[0].to_string().contains("other`: "), "{problems:?}");
    }
}
