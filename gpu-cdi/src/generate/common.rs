use super::{GenerateOptions, HookName, Hooks, Roots, gpus::add_node, links};
use crate::{
    ContainerEdits, DriverFiles, FoundFile, Library, Mount,
    names::{LIBCUDA_DIR, VISIBLE_DEVICES, VISIBLE_DEVICES_VOID},
};

/// Nodes that every CUDA program opens, whichever GPU it uses.
const CONTROL_NODES: [&str; 4] = [
    "/dev/nvidia-modeset",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-uvm",
    "/dev/nvidiactl",
];

const READ_ONLY: [&str; 5] = ["ro", "nosuid", "nodev", "rbind", "rprivate"];
/// A socket is connected to by writing to it.
const SOCKET: [&str; 5] = ["nosuid", "nodev", "rbind", "rprivate", "noexec"];

/// What every container with a GPU of the node gets.
pub(super) fn edits(
    files: &DriverFiles,
    version: &str,
    options: &GenerateOptions,
    roots: &Roots,
    hooks: &Hooks<'_>,
) -> ContainerEdits {
    let mut edits = ContainerEdits {
        env: vec![
            format!("{LIBCUDA_DIR}={}", files.library_dirs.join(":")),
            format!("{VISIBLE_DEVICES}={VISIBLE_DEVICES_VOID}"),
        ],
        mounts: mounts(files, version, roots),
        ..ContainerEdits::default()
    };
    for path in CONTROL_NODES {
        if let Some(node) = files.device_node(path) {
            add_node(&mut edits, node, options, roots);
        }
    }
    let in_order = [
        hooks.create_symlinks(links::of_graphics(files, version)),
        hooks.create_symlinks(links::of_libraries(files)),
        hooks.enable_cuda_compat(version),
        hooks.update_ldcache(library_folders(files)),
        hooks.plain(HookName::DisableDeviceNodeModification),
        hooks.plain(HookName::UpdateApplicationProfile),
    ];
    edits.hooks.extend(in_order.into_iter().flatten());
    edits
}

fn mounts(files: &DriverFiles, version: &str, roots: &Roots) -> Vec<Mount> {
    let mount = |host: &str, container: &str, options: [&str; 5]| Mount {
        host_path: roots.driver_file(host),
        container_path: container.to_owned(),
        options: options.map(str::to_owned).to_vec(),
        mount_type: None,
    };
    let library = |library: &Library| mount(&library.path, &library.path, READ_ONLY);
    let file = |file: &FoundFile| mount(file.content(), &file.path, READ_ONLY);

    // The allocator is searched for its link's sake; as a driver library it is mounted already.
    let allocator = format!("libnvidia-allocator.so.{version}");
    let graphics = files
        .graphics_libraries
        .iter()
        .filter(|library| library.name() != allocator);
    let mut mounts: Vec<_> = files.libraries.iter().chain(graphics).map(library).collect();
    mounts.extend(
        [&files.xorg_modules, &files.binaries, &files.firmware]
            .into_iter()
            .flatten()
            .map(file),
    );
    mounts.extend(
        files
            .configs
            .iter()
            .map(|config| mount(config.file.content(), &config.container_path, READ_ONLY)),
    );
    mounts.extend(
        files
            .sockets
            .iter()
            .map(|socket| mount(socket.content(), &socket.path, SOCKET)),
    );
    mounts
}

/// The folders with driver libraries, in the order of the libraries and each once.
fn library_folders(files: &DriverFiles) -> Vec<String> {
    let mut folders = Vec::new();
    for library in &files.libraries {
        let folder = library.dir();
        if is_library(library.name()) && !folders.iter().any(|known| known == folder) {
            folders.push(folder.to_owned());
        }
    }
    folders
}

/// Whether the loader would take a file of this name for a library: `lib….so` or `lib….so.…`.
fn is_library(name: &str) -> bool {
    let Some((base, suffix)) = name.strip_prefix("lib").and_then(|name| name.rsplit_once(".so")) else {
        return false;
    };
    !base.is_empty() && (suffix.is_empty() || suffix.starts_with('.'))
}
