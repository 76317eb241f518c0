//! What a node's CDI files depend on, as far as it is read at little cost.

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use gpu_core::nvml::LibrarySearch;

use super::{arguments::Arguments, description};

/// Folders whose entries tell that devices came or went, and with what those begin that count.
const DEVICES: [(&str, &[&str]); 5] = [
    ("dev", &["nvidia", "gdrdrv"]),
    ("dev/dri", &["card", "renderD"]),
    ("dev/infiniband", &["uverbs", "rdma_cm"]),
    ("dev/nvidia-caps", &["nvidia"]),
    ("dev/nvidia-caps-imex-channels", &["channel"]),
];

/// A node as it was at one time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    /// The driver's version and build; its library's name, where the kernel tells none.
    driver: Option<String>,
    /// The device nodes that are described, with their numbers and modes.
    nodes: BTreeMap<PathBuf, (u64, u32)>,
    /// The GPUs' MIG devices: the folders of their capabilities.
    capabilities: Vec<PathBuf>,
    /// The files that there are: one that somebody removes is written again.
    files: Vec<String>,
}

impl Fingerprint {
    pub(super) fn of(arguments: &Arguments) -> Self {
        let root = &arguments.host_root;
        let dev_root = arguments.dev_root_here();
        let folder = arguments.specs();
        Self {
            driver: read(&root.join("proc/driver/nvidia/version")).or_else(|| {
                let library = LibrarySearch::beneath(&arguments.driver_root_here()).ok()??;
                Some(library.to_string_lossy().into_owned())
            }),
            nodes: DEVICES
                .iter()
                .flat_map(|(folder, names)| nodes(&dev_root.join(folder), names))
                .collect(),
            capabilities: instances(&root.join("proc/driver/nvidia/capabilities")),
            files: description::file_names(arguments)
                .filter(|name| folder.join(name).exists())
                .collect(),
        }
    }

    /// Whether what is described may be another without any of this being so: a MIG device that was taken away and made anew
    /// under the same numbers since the last look.
    pub(super) fn may_differ_unseen(&self) -> bool {
        !self.capabilities.is_empty()
    }

    /// A node with these folders of MIG instances, and nothing else.
    #[cfg(test)]
    pub(super) fn with_instances(folders: &[&str]) -> Self {
        Self {
            driver: None,
            nodes: BTreeMap::new(),
            capabilities: folders.iter().map(PathBuf::from).collect(),
            files: Vec::new(),
        }
    }
}

/// The first lines of a file of the kernel's.
fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(4096).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The folders of GPU instances and compute instances. Another layout has other folders. One that is made anew as it was has
/// the same, though its MIG devices have other UUIDs, which the driver alone tells
/// ([`may_differ_unseen`](Fingerprint::may_differ_unseen)).
fn instances(capabilities: &Path) -> Vec<PathBuf> {
    let folders = |path: &Path| -> Vec<PathBuf> {
        let entries = path.read_dir().into_iter().flatten().filter_map(Result::ok);
        let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        entries.filter(is_folder).map(|entry| entry.path()).collect()
    };
    let mut found = Vec::new();
    for gpu in folders(capabilities) {
        for instance in folders(&gpu.join("mig")) {
            found.extend(folders(&instance));
            found.push(instance);
        }
    }
    found.sort_unstable();
    found
}

fn nodes(folder: &Path, names: &[&str]) -> BTreeMap<PathBuf, (u64, u32)> {
    let entries = folder.read_dir().into_iter().flatten().filter_map(Result::ok);
    entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            names.iter().any(|start| name.starts_with(start))
        })
        .filter_map(|entry| {
            let status = entry.metadata().ok()?;
            Some((entry.path(), (status.rdev(), status.mode())))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_mig_layout_is_seen() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path();
        fs::create_dir_all(folder.join("gpu0/mig")).unwrap();
        fs::create_dir_all(folder.join("mig")).unwrap();
        assert!(instances(folder).is_empty());
        fs::create_dir_all(folder.join("gpu0/mig/gi1/ci0")).unwrap();
        let before = instances(folder);
        assert_eq!(before.len(), 2);
        fs::create_dir_all(folder.join("gpu0/mig/gi1/ci1")).unwrap();
        assert_ne!(instances(folder), before);
    }

    #[test]
    fn a_node_that_comes_or_changes_is_seen() {
        let root = tempfile::tempdir().unwrap();
        let all = || -> Vec<String> {
            let found = DEVICES
                .iter()
                .flat_map(|(folder, names)| nodes(&root.path().join(folder), names));
            let name = |path: PathBuf| path.strip_prefix(root.path()).unwrap().display().to_string();
            let names = found.map(|(path, _)| name(path));
            // Folders of others.
            names
                .filter(|name| !matches!(name.as_str(), "dev/nvidia-caps" | "dev/nvidia-caps-imex-channels"))
                .collect()
        };
        assert!(all().is_empty());
        let paths = [
            "dev/gdrdrv",
            "dev/nvidia-fs0",
            "dev/nvidia0",
            "dev/dri/card1",
            "dev/dri/renderD128",
            "dev/infiniband/rdma_cm",
            "dev/infiniband/uverbs0",
            "dev/nvidia-caps/nvidia-cap1",
            "dev/nvidia-caps-imex-channels/channel0",
        ];
        for path in paths
            .into_iter()
            .chain(["dev/null", "dev/infiniband/umad0", "dev/dri/by-path/x"])
        {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        assert_eq!(all(), paths);
        let before = nodes(&root.path().join("dev"), DEVICES[0].1);
        fs::write(root.path().join("dev/nvidia1"), "").unwrap();
        assert_ne!(nodes(&root.path().join("dev"), DEVICES[0].1), before);
        assert!(
            nodes(&root.path().join("dev/nvidia0"), &["nvidia"]).is_empty(),
            "no folder"
        );
    }
}
