use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use gpu_cdi::{DeviceNumber, DeviceRule, DiscoverConfig, DriverFiles, gpu_core::Inventory};
use serde_json::{Value, json};

use crate::elf;

/// The kernel release that no folder of a test's driver root is named after.
const RELEASE: &str = "0.0.0-test";

/// A driver root on disk, with a place of its own for `/sys`.
pub(crate) struct DriverRoot {
    dir: tempfile::TempDir,
}

impl DriverRoot {
    pub(crate) fn empty() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        for name in ["root", "sys-root"] {
            fs::create_dir(dir.path().join(name)).expect("a new folder");
        }
        Self { dir }
    }

    /// The tree of a recorded listing, and regular files in place of the device nodes of `gpus` GPUs.
    pub(crate) fn from_listing(listing: &str, gpus: u32) -> Self {
        let root = Self::empty();
        for line in listing.lines() {
            let (kind, rest) = line.split_once(' ').expect("kind and path");
            match kind {
                "d" => fs::create_dir_all(root.path(rest)).expect("a new folder"),
                "l" => {
                    let (path, target) = rest.split_once(" -> ").expect("link and target");
                    root.link(path, target);
                }
                "f" => match rest.split_once("  soname=") {
                    Some((path, soname)) => root.file(path, &elf::library(Some(soname))),
                    None => root.file(rest, b"content"),
                },
                _ => panic!("unknown kind in `{line}`"),
            }
        }
        for i in 0..gpus {
            root.file(&format!("dev/nvidia{i}"), b"");
        }
        for name in ["nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools"] {
            root.file(&format!("dev/{name}"), b"");
        }
        root
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    pub(crate) fn sys_root(&self) -> PathBuf {
        self.dir.path().join("sys-root")
    }

    /// A file with the folders above it; programs and libraries are executable, as packages make them.
    pub(crate) fn file(&self, path: &str, content: &[u8]) {
        write(&self.path(path), content);
    }

    pub(crate) fn sys_file(&self, path: &str, content: &[u8]) {
        write(&self.sys_root().join(path), content);
    }

    pub(crate) fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a new folder");
        symlink(target, path).expect("a new link");
    }

    pub(crate) fn config(&self) -> DiscoverConfig {
        let mut config = DiscoverConfig::new(self.root());
        config.sys_root = self.sys_root();
        config.device_rule = DeviceRule::AnyFile;
        config.kernel_release = Some(RELEASE.to_owned());
        config
    }

    pub(crate) fn discover(&self) -> DriverFiles {
        DriverFiles::discover(&self.config()).expect("a driver root")
    }
}

fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a new folder");
    fs::write(path, content).expect("a new file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its mode");
}

/// Gives the nodes the numbers that they had where the records were made, and says that they were read elsewhere.
pub(crate) fn as_recorded(files: &mut DriverFiles, driver_root: &str, dev_root: &str, uvm: u32) {
    driver_root.clone_into(&mut files.driver_root);
    dev_root.clone_into(&mut files.dev_root);
    for node in &mut files.device_nodes {
        let (major, minor) = match node.path.as_str() {
            "/dev/nvidiactl" => (195, 255),
            "/dev/nvidia-modeset" => (195, 254),
            "/dev/nvidia-uvm" => (uvm, 0),
            "/dev/nvidia-uvm-tools" => (uvm, 1),
            path => {
                let number = path.trim_start_matches(|c: char| !c.is_ascii_digit());
                let major = if path.contains("nvidia-cap") { 241 } else { 195 };
                (major, number.parse().expect("a minor number"))
            }
        };
        node.number = Some(DeviceNumber { major, minor });
        node.mode = 0o666;
        (node.uid, node.gid) = (0, 0);
    }
}

/// An inventory with the driver version and, for each GPU, UUID, PCI address and minor number.
pub(crate) fn inventory(driver: &str, gpus: &[(&str, &str, u32)]) -> Inventory {
    let gpus: Vec<Value> = gpus
        .iter()
        .enumerate()
        .map(|(index, (uuid, address, minor))| {
            json!({ "index": index, "minor": minor, "uuid": uuid, "name": "NVIDIA test GPU",
                    "pci": { "address": address, "id": "10de:2330" } })
        })
        .collect();
    serde_json::from_value(json!({ "driver": { "version": driver }, "gpus": gpus })).expect("an inventory")
}
