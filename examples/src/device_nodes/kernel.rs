//! NVIDIA's device nodes, as the kernel's tables tell of them.

use std::{collections::BTreeMap, fs, path::Path};

#[cfg(any(feature = "mig-manager", feature = "toolkit"))]
use gpu_cdi::{DiscoverConfig, DriverFiles};

use super::Node;

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
    let devices = read(host_root, "proc/devices");
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
    let devices = read(host_root, "proc/devices");
    let Some(major) = majors(&devices).get("nvidia-caps").copied() else {
        return Vec::new();
    };
    let mut config = DiscoverConfig::new(host_root);
    host_root.clone_into(&mut config.sys_root);
    let minors = DriverFiles::read_capabilities(&config).unwrap_or_default();
    minors.into_values().map(|minor| capability(major, minor)).collect()
}

/// All nodes that the driver may have: control, those of the GPUs by the minor numbers that the driver gives them, the
/// capabilities of all MIG devices that there could be, and all IMEX channels.
#[cfg(feature = "gpuctl")]
pub(crate) fn all(host_root: &Path) -> Vec<Node> {
    let devices = read(host_root, "proc/devices");
    let majors = majors(&devices);
    let of = |driver, nodes: fn(&Path, u32) -> Vec<Node>| majors.get(driver).map(|major| nodes(host_root, *major));
    let mut nodes = control(host_root);
    nodes.extend(of("nvidia", gpus).into_iter().flatten());
    nodes.extend(of("nvidia-caps", capabilities).into_iter().flatten());
    nodes.extend(of("nvidia-caps-imex-channels", imex_channels).into_iter().flatten());
    nodes.sort();
    nodes.dedup();
    nodes
}

#[cfg(feature = "gpuctl")]
fn gpus(host_root: &Path, major: u32) -> Vec<Node> {
    let folders = host_root.join("proc/driver/nvidia/gpus").read_dir();
    let node = |folder: fs::DirEntry| {
        let information = fs::read_to_string(folder.path().join("information")).unwrap_or_default();
        let minor = information.lines().find_map(|line| line.strip_prefix("Device Minor:"));
        let minor = minor?.trim().parse().ok()?;
        Some(Node {
            path: format!("/dev/nvidia{minor}"),
            major,
            minor,
            mode: EVERYONE,
        })
    };
    let folders = folders.into_iter().flatten().filter_map(Result::ok);
    folders.filter_map(node).collect()
}

#[cfg(feature = "gpuctl")]
fn capabilities(host_root: &Path, major: u32) -> Vec<Node> {
    let minors = read(host_root, "proc/driver/nvidia-caps/mig-minors");
    let minors = minors.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse().ok());
    minors.map(|minor| capability(major, minor)).collect()
}

#[cfg(feature = "gpuctl")]
fn imex_channels(host_root: &Path, major: u32) -> Vec<Node> {
    let parameters = read(host_root, "proc/driver/nvidia/params");
    let count = parameters
        .lines()
        .find_map(|line| line.strip_prefix("ImexChannelCount:"));
    let count: u32 = count.and_then(|count| count.trim().parse().ok()).unwrap_or(0);
    let node = |minor| Node {
        path: format!("/dev/nvidia-caps-imex-channels/channel{minor}"),
        major,
        minor,
        mode: EVERYONE,
    };
    (0..count.min(MOST_IMEX_CHANNELS)).map(node).collect()
}

/// The node of what MIG devices need to be used.
fn capability(major: u32, minor: u32) -> Node {
    Node {
        path: format!("/dev/nvidia-caps/nvidia-cap{minor}"),
        major,
        minor,
        mode: READ_ONLY,
    }
}

/// A table of the kernel's, empty if there is none.
fn read(host_root: &Path, path: &str) -> String {
    fs::read_to_string(host_root.join(path)).unwrap_or_default()
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
}
