//! The CDI file by which containers manage GPUs.

use std::path::Path;

use anyhow::Context as _;
use gpu_cdi::{DriverFiles, GenerateOptions, generate_management};

use super::MigManager;
use crate::device_nodes;

/// Writes the file anew: device nodes of instances came and went. Those that are missing are made: the driver makes them only
/// when a program of its own is run.
pub(super) fn write(manager: &MigManager) -> anyhow::Result<()> {
    let hardware = manager.hardware();
    let root = &manager.host_root_mount;
    let dev_root = manager.dev_root_ctr_path.as_ref().unwrap_or(&hardware.driver_root);
    device_nodes::make(&device_nodes::control(root), dev_root);
    device_nodes::make(&device_nodes::mig(root), dev_root);
    let mut config = crate::driver_files::with_search_paths(hardware.driver_root.clone());
    config.dev_root = Some(dev_root.clone());
    config.sys_root.clone_from(&manager.host_root_mount);
    let files = DriverFiles::discover(&config).context("cannot look at the driver's files")?;
    let mut options = GenerateOptions::default();
    let text = |path: &Path| path.to_string_lossy().into_owned();
    options.host_driver_root = Some(text(&manager.driver_root));
    options.host_dev_root = Some(text(manager.dev_root.as_deref().unwrap_or(&manager.driver_root)));
    options.hook_path = manager.nvidia_cdi_hook_path.to_string_lossy().into_owned();
    options.kind = "management.nvidia.com/gpu"
        .parse()
        .context("the kind of the CDI file")?;
    let spec = generate_management(&files, &options).context("cannot describe the GPUs for containers")?;
    let file = options.kind.file_stem() + ".yaml";
    spec.write(&Path::new("/var/run/cdi").join(file))
        .context("cannot write the CDI file")
}
