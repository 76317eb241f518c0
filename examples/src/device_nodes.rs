//! NVIDIA's device nodes, as the kernel's tables tell of them.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

#[cfg(any(feature = "mig-manager", feature = "toolkit"))]
use gpu_cdi::{DiscoverConfig, DriverFiles};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

/// A device that the driver has, whether or not there is a node of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Node {
    /// Its path beneath the device root.
    pub(crate) path: String,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    /// Who may open it.
    pub(crate) mode: u32,
}

/// As the driver makes the nodes of GPUs, and those that every program needs.
const EVERYONE: u32 = 0o666;
/// As the driver makes the nodes of MIG instances, which are opened to read.
const READ_ONLY: u32 = 0o444;

/// As many IMEX channels as a driver makes by default, and has where its parameter is not to be believed.
#[cfg(feature = "gpuctl")]
const MOST_IMEX_CHANNELS: u32 = 2048;

/// The nodes that every program needs, the drivers that they belong to, and their minor numbers.
const CONTROL: [(&str, &str, u32); 4] = [
    ("nvidiactl", "nvidia", 255),
    ("nvidia-modeset", "nvidia", 254),
    ("nvidia-uvm", "nvidia-uvm", 0),
    ("nvidia-uvm-tools", "nvidia-uvm", 1),
];

/// The control nodes whose driver is loaded.
pub(crate) fn control(host_root: &Path) -> Vec<Node> {
    let devices = fs::read_to_string(host_root.join("proc/devices")).unwrap_or_default();
    let majors = majors(&devices);
    let node = |(name, driver, minor): (&str, &str, u32)| {
        Some(Node {
            path: format!("/dev/{name}"),
            major: *majors.get(driver)?,
            minor,
            mode: EVERYONE,
        })
    };
    CONTROL.into_iter().filter_map(node).collect()
}

/// The nodes of the MIG instances that exist.
#[cfg(any(feature = "mig-manager", feature = "toolkit"))]
pub(crate) fn mig(host_root: &Path) -> Vec<Node> {
    let devices = fs::read_to_string(host_root.join("proc/devices")).unwrap_or_default();
    let Some(major) = majors(&devices).get("nvidia-caps").copied() else {
        return Vec::new();
    };
    let mut config = DiscoverConfig::new(host_root);
    host_root.clone_into(&mut config.sys_root);
    let minors = DriverFiles::read_capabilities(&config).unwrap_or_default();
    let node = |minor| Node {
        path: format!("/dev/nvidia-caps/nvidia-cap{minor}"),
        major,
        minor,
        mode: READ_ONLY,
    };
    minors.into_values().map(node).collect()
}

/// All nodes that the driver may have: control, those of the GPUs by the minor numbers that the driver gives them, the
/// capabilities of all MIG devices that there could be, and all IMEX channels.
#[cfg(feature = "gpuctl")]
pub(crate) fn all(host_root: &Path) -> Vec<Node> {
    let read = |path: &Path| fs::read_to_string(host_root.join(path)).unwrap_or_default();
    let devices = read("proc/devices".as_ref());
    let majors = majors(&devices);
    let mut nodes = control(host_root);
    if let Some(major) = majors.get("nvidia") {
        let gpus = host_root.join("proc/driver/nvidia/gpus");
        for gpu in gpus.read_dir().into_iter().flatten().filter_map(Result::ok) {
            let information = read(&gpu.path().join("information"));
            let minor = information.lines().find_map(|line| line.strip_prefix("Device Minor:"));
            nodes.extend(
                minor
                    .and_then(|minor| minor.trim().parse().ok())
                    .map(|minor: u32| Node {
                        path: format!("/dev/nvidia{minor}"),
                        major: *major,
                        minor,
                        mode: EVERYONE,
                    }),
            );
        }
    }
    if let Some(major) = majors.get("nvidia-caps") {
        let minors = read("proc/driver/nvidia-caps/mig-minors".as_ref());
        let minors = minors.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse().ok());
        nodes.extend(minors.map(|minor: u32| Node {
            path: format!("/dev/nvidia-caps/nvidia-cap{minor}"),
            major: *major,
            minor,
            mode: READ_ONLY,
        }));
    }
    if let Some(major) = majors.get("nvidia-caps-imex-channels") {
        let parameters = read("proc/driver/nvidia/params".as_ref());
        let count = parameters
            .lines()
            .find_map(|line| line.strip_prefix("ImexChannelCount:"));
        let count: u32 = count.and_then(|count| count.trim().parse().ok()).unwrap_or(0);
        nodes.extend((0..count.min(MOST_IMEX_CHANNELS)).map(|minor| Node {
            path: format!("/dev/nvidia-caps-imex-channels/channel{minor}"),
            major: *major,
            minor,
            mode: EVERYONE,
        }));
    }
    nodes.sort();
    nodes.dedup();
    nodes
}

/// Whether a node is missing. One of that path which is another device is an error.
pub(crate) fn is_missing(node: &Node, dev_root: &Path) -> io::Result<bool> {
    let number = makedev(node.major, node.minor);
    match rustix::fs::lstat(here(node, dev_root)) {
        Ok(found) if found.st_rdev == number && FileType::from_raw_mode(found.st_mode) == FileType::CharacterDevice => {
            Ok(false)
        }
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is another device")),
        Err(rustix::io::Errno::NOENT) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Makes a node that is missing; whether it was. One of that path which is another device is an error.
pub(crate) fn create(node: &Node, dev_root: &Path) -> io::Result<bool> {
    if !is_missing(node, dev_root)? {
        return Ok(false);
    }
    let path = here(node, dev_root);
    let number = makedev(node.major, node.minor);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mode = Mode::from_raw_mode(node.mode);
    mknodat(CWD, &path, FileType::CharacterDevice, mode, number)?;
    rustix::fs::chmod(&path, mode)?; // the umask took its share
    Ok(true)
}

/// The path of a node from here.
pub(crate) fn here(node: &Node, dev_root: &Path) -> PathBuf {
    dev_root.join(node.path.trim_start_matches('/'))
}

/// The major numbers of character devices in `/proc/devices`. The driver was called nvidia-frontend before 550.40.
fn majors(devices: &str) -> BTreeMap<&str, u32> {
    let lines = devices.lines().skip_while(|line| !line.starts_with("Character"));
    let lines = lines.take_while(|line| !line.starts_with("Block"));
    lines
        .filter_map(|line| {
            let (major, name) = line.trim().split_once(' ')?;
            let name = if name == "nvidia-frontend" { "nvidia" } else { name };
            Some((name, major.parse().ok()?))
        })
        .collect()
}

#[cfg(all(test, feature = "gpuctl"))]
mod tests {
    use super::*;

    #[test]
    fn devices_are_those_of_the_kernels_tables() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert!(all(root.path()).is_empty(), "no driver, no devices");
        write(
            "proc/devices",
            "Character devices:\n  1 mem\n195 nvidia-frontend\n236 nvidia-caps\n237 nvidia-caps-imex-channels\n510 nvidia-uvm\n\nBlock devices:\n  7 loop\n",
        );
        // One GPU, whose minor number is not its place.
        write(
            "proc/driver/nvidia/gpus/0000:07:00.0/information",
            "Model: x\nDevice Minor: \t 3\n",
        );
        write("proc/driver/nvidia-caps/mig-minors", "config 1\ngpu3/gi0/access 408\n");
        write("proc/driver/nvidia/params", "EnableMSI: 1\nImexChannelCount: 2\n");
        let nodes: Vec<_> = all(root.path())
            .iter()
            .map(|node| format!("{} {}:{}", node.path, node.major, node.minor))
            .collect();
        assert_eq!(
            nodes,
            [
                "/dev/nvidia-caps-imex-channels/channel0 237:0",
                "/dev/nvidia-caps-imex-channels/channel1 237:1",
                "/dev/nvidia-caps/nvidia-cap1 236:1",
                "/dev/nvidia-caps/nvidia-cap408 236:408",
                "/dev/nvidia-modeset 195:254",
                "/dev/nvidia-uvm 510:0",
                "/dev/nvidia-uvm-tools 510:1",
                "/dev/nvidia3 195:3",
                "/dev/nvidiactl 195:255",
            ]
        );
        assert_eq!(control(root.path()).len(), 4);
    }

    #[test]
    fn another_device_in_the_place_of_a_node_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("dev")).unwrap();
        fs::write(root.path().join("dev/nvidiactl"), "").unwrap();
        let node = Node {
            path: "/dev/nvidiactl".to_owned(),
            major: 195,
            minor: 255,
            mode: EVERYONE,
        };
        assert_eq!(
            create(&node, root.path()).unwrap_err().to_string(),
            "it is another device"
        );
    }
}
