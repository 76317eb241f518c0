use std::path::{Path, PathBuf};

use super::{ConfigFile, DiscoverConfig, found::Search};

const SHARED: [&str; 9] = [
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "egl/egl_external_platform.d/20_nvidia_xcb.json",
    "egl/egl_external_platform.d/20_nvidia_xlib.json",
    "nvidia/nvoptix.bin",
    "X11/xorg.conf.d/10-nvidia.conf",
    "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
];

const OPENCL: &str = "OpenCL/vendors/nvidia.icd";

const VULKAN: [&str; 3] = [
    "vulkan/icd.d/nvidia_icd.json",
    "vulkan/icd.d/nvidia_layers.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
];

/// Some RPM packages name the Vulkan driver's file after the machine.
#[cfg(target_arch = "x86_64")]
const VULKAN_OF_MACHINE: Option<&str> = Some("vulkan/icd.d/nvidia_icd.x86_64.json");
#[cfg(target_arch = "aarch64")]
const VULKAN_OF_MACHINE: Option<&str> = Some("vulkan/icd.d/nvidia_icd.aarch64.json");
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const VULKAN_OF_MACHINE: Option<&str> = None;

/// Configuration files of graphics libraries, wherever they are installed.
pub(super) fn find(search: &mut Search, config: &DiscoverConfig) -> Vec<ConfigFile> {
    let dirs = if config.config_search_paths.is_empty() {
        std::iter::once(PathBuf::from("/etc"))
            .chain(config.data_dirs.iter().cloned())
            .collect()
    } else {
        config.config_search_paths.clone()
    };
    // GKE installs Vulkan's files at the top of the driver root.
    let mut vulkan_dirs = dirs.clone();
    vulkan_dirs.push(PathBuf::from("/"));

    let mut found = Vec::new();
    let mut add = |names: &[&str], dirs: &[PathBuf], place: &str| {
        for name in names {
            if let Some(file) = search.first(dirs, name, |_| true) {
                let container_path = Path::new(place).join(name).to_string_lossy().into_owned();
                found.push(ConfigFile { file, container_path });
            }
        }
    };
    add(&SHARED, &dirs, "/usr/share");
    add(&[OPENCL], &dirs, "/etc");
    add(&VULKAN, &vulkan_dirs, "/etc");
    add(VULKAN_OF_MACHINE.as_slice(), &vulkan_dirs, "/etc");
    found
}
