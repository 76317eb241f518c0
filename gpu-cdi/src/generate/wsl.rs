use super::{GenerateOptions, Hooks, Roots, common, finish, gpus::add_node, options};
use crate::{ContainerEdits, Device, Error, Result, Spec, WslFiles};

/// Describes one device `all` with the GPUs of Windows, as its subsystem for Linux has them: `/dev/dxg` and the driver's files.
///
/// # Errors
/// - [`Error::NothingFound`]: the node or a file that CUDA needs is missing; the message names it.
/// - [`Error::Invalid`] as for [`generate`](crate::generate).
pub fn generate_wsl(files: &WslFiles, options: &GenerateOptions) -> Result<Spec> {
    let missing = |what: &str, root: &str| Error::NothingFound {
        what: what.to_owned(),
        root: root.to_owned(),
    };
    let node = files.device_node.as_ref();
    let node = node.ok_or_else(|| missing("`/dev/dxg`", &files.dev_root))?;
    if let Some(file) = files.missing.first() {
        return Err(missing(&format!("`{file}` of the Windows driver"), &files.root));
    }
    let roots = Roots::new(&files.root, &files.dev_root, options)?;
    let mut edits = ContainerEdits::default();
    add_node(&mut edits, node, options, &roots);

    let hooks = Hooks::new(options)?;
    let paths = || files.files.iter().map(|file| file.path.as_str());
    let smi = paths().find(|path| path.ends_with("/nvidia-smi"));
    let links = smi
        .map(|path| format!("{path}::/usr/bin/nvidia-smi"))
        .into_iter()
        .collect();
    let in_order = [
        hooks.create_symlinks(links),
        hooks.update_ldcache(common::folders_of_libraries(paths())),
    ];
    let mounts = files.files.iter();
    let common = ContainerEdits {
        mounts: mounts
            .map(|file| common::read_only(&roots, file.content(), &file.path))
            .collect(),
        hooks: hooks.called(in_order),
        ..common::void_edits()
    };
    finish(options, vec![Device::new(options::all_name(), edits)], common)
}
