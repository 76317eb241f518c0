use std::{collections::BTreeMap, path::Path};

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::found::Search;

/// What counts as a device node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceRule {
    /// A character device.
    #[default]
    CharacterDevice,
    /// Anything that exists and is no folder: for a driver root that was unpacked without the right to make devices.
    AnyFile,
}

/// A device node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceFile {
    /// Its path beneath the device root, e.g. `/dev/nvidia0`.
    pub path: String,
    /// Its numbers; `None` if it is no device ([`DeviceRule::AnyFile`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<DeviceNumber>,
    /// Its permission bits.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// The numbers of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceNumber {
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

/// Folders of device nodes, and the names in them.
const NODES: [(&str, &[&str]); 7] = [
    ("/dev", &["nvidia*", "gdrdrv", "dxg", "iommu"]),
    ("/dev/nvidia-caps", &["nvidia-cap*"]),
    ("/dev/nvidia-caps-imex-channels", &["channel*"]),
    ("/dev/dri", &["card*", "renderD*"]),
    ("/dev/infiniband", &["uverbs*", "rdma_cm"]),
    ("/dev/vfio", &["*"]),
    ("/dev/vfio/devices", &["vfio*"]),
];

/// What is at the paths of device nodes.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    pub(super) devices: Vec<DeviceFile>,
    /// What is no device, by its path.
    pub(super) others: BTreeMap<String, String>,
}

/// NVIDIA's nodes, and those of DRM, InfiniBand, VFIO and the Windows subsystem. A link is none: what it leads to may be
/// another device tomorrow.
pub(super) fn find(search: &mut Search, rule: DeviceRule) -> Nodes {
    let mut nodes = Nodes::default();
    for (dir, patterns) in NODES {
        for name in search.list(Path::new(dir)).iter() {
            if patterns.iter().any(|pattern| crate::pattern::matches(pattern, name)) {
                let path = format!("{dir}/{name}");
                match look(search, rule, &path) {
                    Some(Ok(device)) => nodes.devices.push(device),
                    Some(Err(kind)) if kind != FileType::Directory => {
                        nodes.others.insert(path, in_words(kind).to_owned());
                    }
                    _ => {}
                }
            }
        }
    }
    nodes
}

pub(super) fn node(search: &mut Search, rule: DeviceRule, path: &str) -> Option<DeviceFile> {
    look(search, rule, path)?.ok()
}

/// The device node at a path, or what is there in its place; `None` if nothing is, or nothing that can be looked at.
fn look(search: &mut Search, rule: DeviceRule, path: &str) -> Option<Result<DeviceFile, FileType>> {
    let stat = match search.root.lstat(Path::new(path)) {
        Ok(stat) => stat,
        Err(error) => {
            search.failed(Path::new(path), &error);
            return None;
        }
    };
    let kind = FileType::from_raw_mode(stat.st_mode);
    let counts = match rule {
        DeviceRule::CharacterDevice => kind == FileType::CharacterDevice,
        DeviceRule::AnyFile => kind != FileType::Directory,
    };
    if !counts {
        return Some(Err(kind));
    }
    Some(Ok(DeviceFile {
        path: path.to_owned(),
        number: (kind == FileType::CharacterDevice).then(|| DeviceNumber {
            major: rustix::fs::major(stat.st_rdev),
            minor: rustix::fs::minor(stat.st_rdev),
        }),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
    }))
}

fn in_words(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Symlink => "a symbolic link",
        FileType::BlockDevice => "a block device",
        _ => "something else",
    }
}
