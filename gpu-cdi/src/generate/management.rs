use super::{GenerateOptions, Hooks, Roots, common, driver_version, finish, gpus::add_node, options};
use crate::{ContainerEdits, Device, DriverFiles, Error, Result, Spec};

/// Nodes with these beginnings are no GPUs', and not of use to manage them.
const OTHERS: [&str; 3] = ["/dev/nvidia-fs", "/dev/nvidia-nvswitch", "/dev/nvidia-nvlink"];

/// Describes one device `all` with every NVIDIA node, for programs that manage the GPUs of a node.
///
/// The driver is mounted without what is for graphics, and libraries may make device nodes. Needs no NVML: what is in
/// `/dev` counts, also the nodes of GPUs that cannot be read. Of the options, those that choose and name GPUs do nothing.
///
/// # Errors
/// - [`Error::NothingFound`]: there is no NVIDIA node.
/// - [`Error::NoDriverLibraries`] and [`Error::Invalid`] as for [`generate`](crate::generate).
pub fn generate_management(files: &DriverFiles, options: &GenerateOptions) -> Result<Spec> {
    let version = driver_version(files, || None)?;
    let roots = Roots::new(&files.driver_root, &files.dev_root, options)?;
    let hooks = Hooks::new(options)?;
    let mut edits = ContainerEdits::default();
    for node in &files.device_nodes {
        if node.path.starts_with("/dev/nvidia") && !OTHERS.iter().any(|start| node.path.starts_with(start)) {
            add_node(&mut edits, node, options, &roots);
        }
    }
    if edits.is_empty() {
        return Err(Error::NothingFound {
            what: "NVIDIA device node".to_owned(),
            root: files.dev_root.clone(),
        });
    }
    let common = common::management_edits(files, version, options, &roots, &hooks);
    finish(options, vec![Device::new(options::all_name(), edits)], common)
}
