use std::path::{Path, PathBuf};

use super::{DiscoverConfig, FoundFile, Library, driver_libraries::DriverLibraries, found::Search, libraries};

/// EGL platform libraries, which have versions of their own.
const EGL: [&str; 5] = [
    "libnvidia-egl-gbm.so.*.*",
    "libnvidia-egl-wayland.so.*.*",
    "libnvidia-egl-wayland2.so.*.*",
    "libnvidia-egl-xcb.so.*.*",
    "libnvidia-egl-xlib.so.*.*",
];

/// Where X servers look for modules, after the folders of the driver.
const XORG_DIRS: [&str; 4] = ["/usr/lib/xorg", "/usr/lib64/xorg", "/usr/X11R6/lib", "/usr/X11R6/lib64"];

/// The libraries and the X server's modules for graphics; none without a driver.
pub(super) fn find(
    search: &mut Search,
    config: &DiscoverConfig,
    driver: &DriverLibraries,
) -> (Vec<Library>, Vec<FoundFile>) {
    let Some(version) = &driver.version else {
        return (Vec::new(), Vec::new());
    };
    let linked = ["libnvidia-allocator.so", "libnvidia-vulkan-producer.so"].map(|name| format!("{name}.{version}"));
    let mut paths = Vec::new();
    for name in EGL.into_iter().chain(linked.iter().map(String::as_str)) {
        for path in libraries::locate(search, config, name) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
    }
    let libraries = paths.iter().filter_map(|path| Library::read(search, path)).collect();

    let dirs = xorg_dirs(&driver.dirs);
    let modules = ["nvidia_drv.so".to_owned(), format!("libglxserver_nvidia.so.{version}")];
    let modules = modules
        .iter()
        .filter_map(|name| search.first(&dirs, name, |_| true))
        .collect();
    (libraries, modules)
}

fn xorg_dirs(library_dirs: &[String]) -> Vec<PathBuf> {
    let modules = |base: PathBuf| {
        ["drivers", "extensions", "updates/drivers", "updates/extensions"].map(|dir| base.join("modules").join(dir))
    };
    let mut dirs = Vec::new();
    for dir in library_dirs.iter().map(Path::new) {
        dirs.push(dir.join("nvidia/xorg"));
        dirs.extend(modules(dir.join("xorg")));
    }
    dirs.extend(XORG_DIRS.into_iter().map(PathBuf::from).flat_map(modules));
    dirs
}
