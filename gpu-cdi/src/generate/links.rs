use super::simplify;
use crate::{DriverFiles, FoundFile, Library};

/// The links of the driver libraries, each `target::link`, in the order of the libraries and each once.
pub(super) fn of_libraries<'l>(files: &DriverFiles, libraries: impl Iterator<Item = &'l Library>) -> Vec<String> {
    let mut links = Vec::new();
    for library in libraries {
        links.extend(special(library).into_iter().chain(sonames(files, library)));
    }
    simplify::once(&mut links);
    links
}

/// Links that programs need whether or not the host has them.
fn special(library: &Library) -> Option<String> {
    let name = library.name();
    let is = |base: &str| name.strip_prefix(base).is_some_and(has_dotted_version);
    if is("libcuda.so") {
        // Programs load it by this name without the development package that would hold it.
        Some(link("libcuda.so.1", library, "libcuda.so"))
    } else if is("libGLX_nvidia.so") {
        // libglvnd looks for this name when it renders indirectly.
        Some(link(name, library, "libGLX_indirect.so.0"))
    } else if is("libnvidia-opticalflow.so") {
        Some(link("libnvidia-opticalflow.so.1", library, "libnvidia-opticalflow.so"))
    } else {
        None
    }
}

/// The links from SONAME to file and from the name without version to SONAME, as far as the host has them.
fn sonames(files: &DriverFiles, library: &Library) -> Vec<String> {
    let name = library.name();
    if !library.readable || name.matches('.').count() < 2 {
        return Vec::new();
    }
    let soname = library.soname.as_deref().unwrap_or(name);
    let on_host = |name: &str| files.links.contains_key(&beside(library, name));
    let mut links = Vec::new();
    if soname != name && on_host(soname) {
        links.push(link(name, library, soname));
    }
    if let Some(end) = soname.rfind(".so.").map(|at| at + ".so".len())
        && on_host(&soname[..end])
    {
        links.push(link(soname, library, &soname[..end]));
    }
    links
}

/// The links for graphics.
pub(super) fn of_graphics(files: &DriverFiles, version: &str) -> Vec<String> {
    let mut links = Vec::new();
    for library in &files.graphics_libraries {
        let name = library.name();
        if name == format!("libnvidia-allocator.so.{version}") {
            // Mesa's buffer manager loads its back ends from this folder.
            links.push(link("../libnvidia-allocator.so.1", library, "gbm/nvidia-drm_gbm.so"));
        } else if name == format!("libnvidia-vulkan-producer.so.{version}") {
            links.push(link(name, library, "libnvidia-vulkan-producer.so"));
        }
    }
    for FoundFile { path, .. } in &files.xorg_modules {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        if name == format!("libglxserver_nvidia.so.{version}") {
            links.push(format!("{name}::{dir}/libglxserver_nvidia.so"));
        }
    }
    links
}

/// The links of a GPU's DRM nodes by PCI address, if `selected` has the node they lead to.
pub(super) fn of_drm(files: &DriverFiles, address: gpu_core::PciAddress, selected: &[String]) -> Vec<String> {
    let mut links = Vec::new();
    for node in ["card", "render"] {
        let link = format!("/dev/dri/by-path/pci-{address}-{node}");
        let Some(target) = files.links.get(&link) else {
            continue;
        };
        let leads_to = match target.strip_prefix("../") {
            Some(name) => format!("/dev/dri/{name}"),
            None => target.clone(),
        };
        if selected.contains(&leads_to) {
            links.push(format!("{target}::{link}"));
        }
    }
    links
}

fn link(target: &str, library: &Library, name: &str) -> String {
    format!("{target}::{}", beside(library, name))
}

fn beside(library: &Library, name: &str) -> String {
    match library.dir() {
        "/" => format!("/{name}"),
        dir => format!("{dir}/{name}"),
    }
}

/// Whether what follows a library's name is a version with a dot in it: `.550.163.01`.
fn has_dotted_version(suffix: &str) -> bool {
    suffix.strip_prefix('.').is_some_and(|version| version.contains('.'))
}
