use gpu_core::Inventory;

use super::{GenerateOptions, Hooks, Roots, common, finish, gpus::add_node};
use crate::{ContainerEdits, Device, Error, Result, Spec, TegraFiles};

/// The name that NVML gives the GPU of an Orin, whose compatibility libraries are others.
const ORIN: &str = "Orin (nvgpu)";

/// Where images have the compatibility libraries of Orin.
pub const ORIN_COMPAT_DIR: &str = "/usr/local/cuda/compat-orin";

/// Describes the GPU of a Tegra machine: the nodes that its csv files name, and for every container the folders, libraries and
/// links.
///
/// The GPU has index 0; it has a UUID, and a choice of compatibility libraries, where NVML tells of it. `compat_dir` is where
/// images have those of Orin.
///
/// # Errors
/// - [`Error::NothingFound`]: the files name no node that there is.
/// - [`Error::TegraWithOtherGpus`]: NVML tells of more than one GPU.
/// - [`Error::Invalid`] as for [`generate`](crate::generate).
pub fn generate_tegra(
    inventory: Option<&Inventory>,
    files: &TegraFiles,
    options: &GenerateOptions,
    compat_dir: &str,
) -> Result<Spec> {
    let gpus = inventory.map(|inventory| inventory.gpus.as_slice()).unwrap_or_default();
    if gpus.len() > 1 {
        return Err(Error::TegraWithOtherGpus { count: gpus.len() });
    }
    let roots = Roots::new(&files.driver_root, &files.dev_root, options)?;
    let mut edits = ContainerEdits::default();
    for node in &files.device_nodes {
        add_node(&mut edits, node, options, &roots);
    }
    if edits.is_empty() {
        return Err(Error::NothingFound {
            what: "device node that a csv file names".to_owned(),
            root: files.dev_root.clone(),
        });
    }
    let mut devices = Vec::new();
    for strategy in &options.names {
        let name = match gpus.first() {
            Some(gpu) => Some(strategy.gpu(gpu)),
            None => strategy.first(),
        };
        devices.extend(name.map(|name| Device::new(name, edits.clone())));
    }
    let hooks = Hooks::new(options)?;
    finish(
        options,
        devices,
        common_edits(inventory, files, &roots, &hooks, compat_dir),
    )
}

fn common_edits(
    inventory: Option<&Inventory>,
    files: &TegraFiles,
    roots: &Roots,
    hooks: &Hooks<'_>,
    compat_dir: &str,
) -> ContainerEdits {
    let mounts = files.folders.iter().chain(&files.libraries);
    let mounts: Vec<_> = mounts
        .map(|file| common::read_only(roots, file.content(), &file.path))
        .collect();
    let libraries = files.libraries.iter().map(|file| file.path.as_str());
    let in_order = [
        hooks.create_symlinks(files.links.clone()),
        cuda_compat(inventory, hooks, compat_dir),
        hooks.update_ldcache(common::folders_of_libraries(libraries)),
    ];
    ContainerEdits {
        mounts,
        hooks: hooks.called(in_order),
        ..common::void_edits()
    }
}

fn cuda_compat(inventory: Option<&Inventory>, hooks: &Hooks<'_>, compat_dir: &str) -> Option<crate::Hook> {
    let inventory = inventory?;
    let driver = inventory.driver.as_ref()?;
    match (&driver.cuda_version, inventory.gpus.first()) {
        (Some(cuda), Some(gpu)) if gpu.name == ORIN => hooks.enable_cuda_compat_for(&cuda.to_string(), compat_dir),
        _ => hooks.enable_cuda_compat(&driver.version.to_string()),
    }
}
