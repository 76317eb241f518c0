use gpu_core::{AddressingMode, Gpu, Inventory, MigDevice};

use super::{GenerateOptions, Hooks, Roots, SkipReason, SkippedDevice, links};
use crate::{ContainerEdits, Device, DeviceFile, DeviceName, DeviceNode, DriverFiles, Error, Result, names};

/// The devices of the selected GPUs and MIG devices, and those that cannot be offered.
pub(super) fn devices(
    inventory: &Inventory,
    files: &DriverFiles,
    options: &GenerateOptions,
    roots: &Roots,
    hooks: &Hooks<'_>,
) -> Result<(Vec<Device>, Vec<SkippedDevice>)> {
    check_selection(inventory, options)?;
    let described = Described {
        files,
        options,
        roots,
        hooks,
    };
    let (mut devices, mut skipped) = (Vec::new(), Vec::new());
    for gpu in &inventory.gpus {
        if gpu.mig_enabled() {
            described.mig_devices(gpu, &mut devices, &mut skipped);
        } else if described.selects(gpu) {
            match described.gpu(gpu) {
                Ok(edits) => devices.extend(
                    options
                        .names
                        .iter()
                        .map(|names| described.device(gpu, names.gpu(gpu), &edits)),
                ),
                Err(reason) => skipped.push(SkippedDevice::gpu(gpu, reason)),
            }
        }
    }
    Ok((devices, skipped))
}

fn check_selection(inventory: &Inventory, options: &GenerateOptions) -> Result<()> {
    let unknown = options.devices.iter().find(|id| {
        !inventory
            .gpus
            .iter()
            .any(|gpu| id.names_gpu(gpu) || mig_devices(gpu).any(|device| id.names_mig(gpu, device)))
    });
    match unknown {
        Some(id) => {
            let known = inventory.gpus.iter().flat_map(|gpu| {
                let migs = mig_devices(gpu).map(|device| format!("{}:{}", gpu.index, device.index));
                std::iter::once(gpu.index.to_string()).chain(migs)
            });
            Err(Error::UnknownDevice {
                id: id.to_string(),
                known: known.collect(),
            })
        }
        None => Ok(()),
    }
}

fn mig_devices(gpu: &Gpu) -> impl Iterator<Item = &MigDevice> {
    gpu.mig.iter().flat_map(|mig| &mig.devices)
}

/// Whether the processor's page tables are the GPU's too, as on Grace.
fn is_coherent(gpu: &Gpu) -> bool {
    gpu.addressing_mode == Some(AddressingMode::Ats)
}

/// What the description of one device is made of.
struct Described<'a> {
    files: &'a DriverFiles,
    options: &'a GenerateOptions,
    roots: &'a Roots,
    hooks: &'a Hooks<'a>,
}

impl Described<'_> {
    fn selects(&self, gpu: &Gpu) -> bool {
        let ids = &self.options.devices;
        ids.is_empty() || ids.iter().any(|id| id.names_gpu(gpu))
    }

    fn mig_devices(&self, gpu: &Gpu, devices: &mut Vec<Device>, skipped: &mut Vec<SkippedDevice>) {
        let all = self.selects(gpu);
        if all && mig_devices(gpu).next().is_none() {
            skipped.push(SkippedDevice::gpu(gpu, SkipReason::NoMigDevices));
        }
        let ids = &self.options.devices;
        for mig in mig_devices(gpu).filter(|mig| all || ids.iter().any(|id| id.names_mig(gpu, mig))) {
            let names = self.options.names.iter().filter_map(|names| names.mig(gpu, mig));
            let names: Vec<DeviceName> = names.collect();
            match self.mig_device(gpu, mig) {
                Ok(_) if names.is_empty() => skipped.push(SkippedDevice::mig(gpu, mig, SkipReason::NoName)),
                Ok(edits) => devices.extend(names.into_iter().map(|name| self.device(gpu, name, &edits))),
                Err(reason) => skipped.push(SkippedDevice::mig(gpu, mig, reason)),
            }
        }
    }

    fn device(&self, gpu: &Gpu, name: DeviceName, edits: &ContainerEdits) -> Device {
        let mut device = Device::new(name, edits.clone());
        if self.options.coherent_annotations {
            let value = is_coherent(gpu).to_string();
            device.annotations.insert(names::COHERENT.to_owned(), value);
        }
        device
    }

    /// What a container gets with this GPU: its node, its DRM nodes, and the links to these by PCI address.
    fn gpu(&self, gpu: &Gpu) -> Result<ContainerEdits, SkipReason> {
        if gpu.is_display_only() {
            let name = gpu.name.clone();
            return Err(SkipReason::DisplayOnly { name });
        }
        let mut edits = ContainerEdits::default();
        self.add_node(&mut edits, self.files.gpu_node(gpu)?);
        self.add_drm(&mut edits, gpu);
        Ok(edits)
    }

    /// What a container gets with this MIG device: the GPU's node and the two that let it use the instance.
    fn mig_device(&self, gpu: &Gpu, device: &MigDevice) -> Result<ContainerEdits, SkipReason> {
        let mut edits = ContainerEdits::default();
        for node in self.files.mig_nodes(gpu, device)? {
            self.add_node(&mut edits, node);
        }
        let draws = |profile: &gpu_core::MigProfile| profile.attributes().iter().any(|attribute| attribute == "gfx");
        if device.profile.as_ref().is_some_and(draws) {
            self.add_drm(&mut edits, gpu);
        }
        Ok(edits)
    }

    fn add_node(&self, edits: &mut ContainerEdits, node: &DeviceFile) {
        add_node(edits, node, self.options, self.roots);
    }

    fn add_drm(&self, edits: &mut ContainerEdits, gpu: &Gpu) {
        let address = gpu.pci.address;
        let mut drm = Vec::new();
        for name in self.files.drm.get(&address).into_iter().flatten() {
            let path = format!("/dev/dri/{name}");
            if let Some(node) = self.files.device_node(&path) {
                self.add_node(edits, node);
                drm.push(path);
            }
        }
        let links = links::of_drm(self.files, address, &drm);
        edits.hooks.extend(self.hooks.create_symlinks(links));
    }
}

/// Adds a device node with what is known of it, and its group where only that may use it.
pub(super) fn add_node(edits: &mut ContainerEdits, file: &DeviceFile, options: &GenerateOptions, roots: &Roots) {
    let host_path = roots.device_node(&file.path);
    let Some(number) = file.number else {
        edits.device_nodes.push(DeviceNode {
            path: file.path.clone(),
            host_path,
            ..DeviceNode::default()
        });
        return;
    };
    edits.device_nodes.push(DeviceNode {
        path: file.path.clone(),
        host_path,
        major: number.major.into(),
        minor: number.minor.into(),
        file_mode: (file.mode != 0).then_some(file.mode),
        permissions: Some("rwm".to_owned()),
        gid: (file.gid != 0).then_some(file.gid),
        ..DeviceNode::default()
    });
    let everyone = file.mode & 0o006 == 0o006;
    if options.additional_gids && file.gid != 0 && file.mode != 0 && !everyone {
        edits.additional_gids.push(file.gid);
    }
}

/// Puts one set of edits behind another.
pub(super) fn append(edits: &mut ContainerEdits, more: ContainerEdits) {
    edits.env.extend(more.env);
    edits.device_nodes.extend(more.device_nodes);
    edits.net_devices.extend(more.net_devices);
    edits.hooks.extend(more.hooks);
    edits.mounts.extend(more.mounts);
    edits.additional_gids.extend(more.additional_gids);
}
