use gpu_core::{Gpu, Inventory};

use super::{GenerateOptions, Hooks, Roots, SkipReason, SkippedGpu, links};
use crate::{ContainerEdits, Device, DeviceFile, DeviceNode, DriverFiles, Error, Result};

/// The devices of the selected GPUs, and the GPUs that cannot be offered.
pub(super) fn devices(
    inventory: &Inventory,
    files: &DriverFiles,
    options: &GenerateOptions,
    roots: &Roots,
    hooks: &Hooks<'_>,
) -> Result<(Vec<Device>, Vec<SkippedGpu>)> {
    for id in &options.gpus {
        if !inventory.gpus.iter().any(|gpu| id.names(gpu)) {
            return Err(Error::UnknownGpu { id: id.to_string() });
        }
    }
    let selected = |gpu: &&Gpu| options.gpus.is_empty() || options.gpus.iter().any(|id| id.names(gpu));
    let (mut devices, mut skipped) = (Vec::new(), Vec::new());
    for gpu in inventory.gpus.iter().filter(selected) {
        match edits(gpu, files, options, roots, hooks) {
            Ok(container_edits) => devices.extend(options.names.iter().map(|strategy| Device {
                name: strategy.name(gpu),
                annotations: std::collections::BTreeMap::new(),
                container_edits: container_edits.clone(),
            })),
            Err(reason) => skipped.push(SkippedGpu::new(gpu, reason)),
        }
    }
    Ok((devices, skipped))
}

/// What a container gets with this GPU: its node, its DRM nodes, and the links to these by PCI address.
fn edits(
    gpu: &Gpu,
    files: &DriverFiles,
    options: &GenerateOptions,
    roots: &Roots,
    hooks: &Hooks<'_>,
) -> Result<ContainerEdits, SkipReason> {
    if gpu.is_display_only() {
        let name = gpu.name.clone();
        return Err(SkipReason::DisplayOnly { name });
    }
    if gpu.mig_enabled() {
        return Err(SkipReason::MigEnabled);
    }
    let path = format!("/dev/nvidia{}", gpu.minor);
    let Some(node) = files.device_node(&path) else {
        return Err(SkipReason::DeviceNodeMissing { path });
    };
    let mut edits = ContainerEdits::default();
    add_node(&mut edits, node, options, roots);

    let address = gpu.pci.address;
    let mut drm = Vec::new();
    for name in files.drm.get(&address).into_iter().flatten() {
        let path = format!("/dev/dri/{name}");
        if let Some(node) = files.device_node(&path) {
            add_node(&mut edits, node, options, roots);
            drm.push(path);
        }
    }
    edits
        .hooks
        .extend(hooks.create_symlinks(links::of_drm(files, address, &drm)));
    Ok(edits)
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
