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
        env: env(files),
        mounts: mounts(files, roots, options, Some(version)),
        ..ContainerEdits::default()
    };
    for path in CONTROL_NODES {
        if let Some(node) = files.device_node(path) {
            add_node(&mut edits, node, options, roots);
        }
    }
    let in_order = [
        hooks.create_symlinks(links::of_graphics(files, version)),
        hooks.create_symlinks(links::of_libraries(files, libraries(files, options))),
        hooks.enable_cuda_compat(version),
        hooks.update_ldcache(library_folders(libraries(files, options))),
        hooks.plain(HookName::DisableDeviceNodeModification),
        hooks.plain(HookName::UpdateApplicationProfile),
    ];
    edits.hooks = hooks.called(in_order);
    edits
}

/// What a container gets that manages the node's GPUs: the driver without graphics.
pub(super) fn management_edits(
    files: &DriverFiles,
    version: &str,
    options: &GenerateOptions,
    roots: &Roots,
    hooks: &Hooks<'_>,
) -> ContainerEdits {
    let in_order = [
        hooks.create_symlinks(links::of_libraries(files, libraries(files, options))),
        hooks.enable_cuda_compat(version),
        hooks.update_ldcache(library_folders(libraries(files, options))),
    ];
    ContainerEdits {
        env: env(files),
        mounts: mounts(files, roots, options, None),
        hooks: hooks.called(in_order),
        ..ContainerEdits::default()
    }
}

/// What a container gets with devices that need no driver libraries.
pub(super) fn void_edits() -> ContainerEdits {
    ContainerEdits {
        env: vec![format!("{VISIBLE_DEVICES}={VISIBLE_DEVICES_VOID}")],
        ..ContainerEdits::default()
    }
}

fn env(files: &DriverFiles) -> Vec<String> {
    vec![
        format!("{LIBCUDA_DIR}={}", files.library_dirs.join(":")),
        format!("{VISIBLE_DEVICES}={VISIBLE_DEVICES_VOID}"),
    ]
}

/// The mount of a file of the driver root that a container only reads.
pub(super) fn read_only(roots: &Roots, host: &str, container: &str) -> Mount {
    mount(roots, host, container, READ_ONLY)
}

fn mount(roots: &Roots, host: &str, container: &str, options: [&str; 5]) -> Mount {
    Mount {
        host_path: roots.driver_file(host),
        container_path: container.to_owned(),
        options: options.map(str::to_owned).to_vec(),
        mount_type: None,
    }
}

/// The driver's files; with its version, those for graphics too.
fn mounts(files: &DriverFiles, roots: &Roots, options: &GenerateOptions, graphics: Option<&str>) -> Vec<Mount> {
    let library = |library: &Library| read_only(roots, &library.path, &library.path);
    let file = |file: &FoundFile| read_only(roots, file.content(), &file.path);

    let mut mounts: Vec<_> = libraries(files, options).map(library).collect();
    if let Some(version) = graphics {
        // The allocator is searched for its link's sake; as a driver library it is mounted already.
        let allocator = format!("libnvidia-allocator.so.{version}");
        let graphics = files.graphics_libraries.iter();
        mounts.extend(graphics.filter(|library| library.name() != allocator).map(library));
        mounts.extend(files.xorg_modules.iter().map(file));
        mounts.extend(
            files
                .configs
                .iter()
                .map(|config| read_only(roots, config.file.content(), &config.container_path)),
        );
    }
    let binaries = files.binaries.iter();
    mounts.extend(
        binaries
            .filter(|binary| graphics.is_some() || !binary.path.ends_with("/nvidia-xconfig"))
            .map(file),
    );
    mounts.extend(files.firmware.iter().map(file));
    if options.ipc_sockets {
        let sockets = files.sockets.iter();
        mounts.extend(sockets.map(|socket| mount(roots, socket.content(), &socket.path, SOCKET)));
    }
    mounts
}

/// The folders with driver libraries, in the order of the libraries and each once.
fn library_folders<'l>(libraries: impl Iterator<Item = &'l Library>) -> Vec<String> {
    folders_of_libraries(libraries.map(|library| library.path.as_str()))
}

/// The folders of those of these files that are libraries by their names.
pub(super) fn folders_of_libraries<'p>(paths: impl Iterator<Item = &'p str>) -> Vec<String> {
    let mut folders: Vec<String> = Vec::new();
    for path in paths {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let folder = if folder.is_empty() { "/" } else { folder };
        if is_library(name) && !folders.iter().any(|known| known == folder) {
            folders.push(folder.to_owned());
        }
    }
    folders
}

/// The libraries that a container gets.
fn libraries<'f>(files: &'f DriverFiles, options: &GenerateOptions) -> impl Iterator<Item = &'f Library> {
    let more = if options.libraries_32 {
        files.libraries_32.as_slice()
    } else {
        &[]
    };
    files.libraries.iter().chain(more)
}

/// Whether the loader would take a file of this name for a library: `lib….so` or `lib….so.…`.
fn is_library(name: &str) -> bool {
    let Some((base, suffix)) = name.strip_prefix("lib").and_then(|name| name.rsplit_once(".so")) else {
        return false;
    };
    !base.is_empty() && (suffix.is_empty() || suffix.starts_with('.'))
}
