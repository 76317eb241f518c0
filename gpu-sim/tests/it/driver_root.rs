use std::{fs, path::PathBuf, process::Command};

use gpu_sim::{NodeSpec, Service};
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _};

use crate::{Simulated, output};

/// The folder of the node's driver libraries.
fn libraries(node: &Simulated) -> PathBuf {
    node.node
        .root()
        .join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH))
}

fn soname(library: &[u8]) -> Option<String> {
    let file = ElfFile64::<object::LittleEndian>::parse(library).ok()?;
    let sections = file.elf_header().sections(file.endian(), library).ok()?;
    let (entries, link) = sections.dynamic(file.endian(), library).ok()??;
    let strings = sections.strings(file.endian(), library, link).ok()?;
    let entry = entries
        .iter()
        .find(|entry| entry.tag(file.endian()) == object::elf::DT_SONAME)?;
    Some(String::from_utf8_lossy(entry.string(file.endian(), strings).ok()?).into_owned())
}

#[test]
fn every_library_has_the_soname_that_its_link_is_named_after() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let mut links = 0;
    for entry in fs::read_dir(libraries(&node)).unwrap() {
        let entry = entry.unwrap();
        let (name, path) = (entry.file_name().into_string().unwrap(), entry.path());
        if path.is_dir() {
            continue;
        }
        let soname = soname(&fs::read(&path).unwrap()).unwrap_or_else(|| panic!("{name} has no SONAME"));
        let target = fs::read_link(&path).ok();
        // A link such as libcuda.so.1 to libcuda.so.550.163.01; libcuda.so points to the former.
        if target.is_some_and(|target| target.to_string_lossy().ends_with("550.163.01")) {
            assert_eq!(soname, name);
            links += 1;
        }
    }
    assert!(links > 15, "{links}");
}

#[test]
fn the_loader_accepts_the_libraries() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let library = libraries(&node).join("libcuda.so.550.163.01");
    let output = Command::new("/bin/true").env("LD_PRELOAD", &library).output().unwrap();
    // One that cannot be loaded is only warned about.
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn ldconfig_makes_the_links() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let copy = tempfile::tempdir().unwrap();
    for name in ["libcuda.so.550.163.01", "libnvidia-ml.so.550.163.01"] {
        fs::copy(libraries(&node).join(name), copy.path().join(name)).unwrap();
    }
    let status = Command::new("/sbin/ldconfig")
        .arg("-n")
        .arg(copy.path())
        .status()
        .unwrap();
    assert!(status.success());
    for (link, library) in [
        ("libcuda.so.1", "libcuda.so.550.163.01"),
        ("libnvidia-ml.so.1", "libnvidia-ml.so.550.163.01"),
    ] {
        assert_eq!(fs::read_link(copy.path().join(link)).unwrap().to_str(), Some(library));
    }
}

#[test]
fn programs_that_are_not_simulated_say_so() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let output = output(&mut Command::new(node.node.root().join("usr/bin/nvidia-persistenced")));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr).starts_with("nvidia-persistenced: not part of this simulated node")
    );
}

#[test]
fn a_service_shows_by_its_socket() {
    use std::os::unix::fs::FileTypeExt as _;
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    for (service, folder) in [
        (Service::Persistenced, "nvidia-persistenced"),
        (Service::Fabricmanager, "nvidia-fabricmanager"),
    ] {
        let socket = node.node.root().join("run").join(folder).join("socket");
        let is_there = || fs::symlink_metadata(&socket).is_ok_and(|metadata| metadata.file_type().is_socket());
        assert!(!is_there());
        for running in [true, true, false, false] {
            node.node.set_service(service, running).unwrap();
            assert_eq!(is_there(), running);
        }
    }
}
