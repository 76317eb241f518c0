//! The files that an offer stands on: device nodes and CDI files.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use gpu_cdi::{DeviceRule, DiscoverConfig};
use gpu_core::root::{
    Root,
    rustix::fs::{FileType, Stat},
};

/// How these files were when the offer was made.
#[derive(Debug, Clone)]
pub(super) struct Footing {
    /// The root beneath which device nodes are.
    root: PathBuf,
    rule: DeviceRule,
    nodes: BTreeMap<String, Option<Node>>,
    cdi_files: Vec<PathBuf>,
}

/// What of a device node a CDI spec tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    number: u64,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Footing {
    pub(super) fn new(config: &DiscoverConfig) -> Self {
        let root = config.dev_root.as_ref().unwrap_or(&config.driver_root);
        Self {
            root: root.clone(),
            rule: config.device_rule,
            nodes: BTreeMap::new(),
            cdi_files: Vec::new(),
        }
    }

    /// Stands on these device nodes, by their paths beneath the root, as they are; on those that were not found by their coming.
    pub(super) fn add_nodes<'a>(&mut self, paths: impl IntoIterator<Item = (&'a str, bool)>) {
        let root = Root::open(&self.root).ok();
        for (path, found) in paths {
            let now = root.as_ref().filter(|_| found).and_then(|root| self.node(root, path));
            self.nodes.entry(path.to_owned()).or_insert(now);
        }
    }

    /// Stands on these files, whatever is in them: who writes another is not written over.
    pub(super) fn add_cdi_files(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        self.cdi_files.extend(paths);
    }

    /// Whether the nodes are as they were, and the files there.
    pub(super) fn holds(&self) -> bool {
        if !self.cdi_files.iter().all(|path| path.symlink_metadata().is_ok()) {
            return false;
        }
        let root = Root::open(&self.root).ok();
        let now = |path: &String| root.as_ref().and_then(|root| self.node(root, path));
        self.nodes.iter().all(|(path, node)| now(path) == *node)
    }

    fn node(&self, root: &Root, path: &str) -> Option<Node> {
        let stat = root.lstat(Path::new(path)).ok()?;
        is_node(&stat, self.rule).then_some(Node {
            number: stat.st_rdev,
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
        })
    }
}

fn is_node(stat: &Stat, rule: DeviceRule) -> bool {
    let kind = FileType::from_raw_mode(stat.st_mode);
    match rule {
        DeviceRule::AnyFile => kind != FileType::Directory,
        _ => kind == FileType::CharacterDevice,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_node_that_goes_or_comes_or_changes_and_a_file_that_goes_are_noticed() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        fs::create_dir(at("dev")).unwrap();
        fs::write(at("dev/nvidia0"), "").unwrap();
        fs::write(at("gpu.json"), "{}").unwrap();
        let mut config = DiscoverConfig::new(root.path());
        config.device_rule = DeviceRule::AnyFile;
        let mut footing = Footing::new(&config);
        footing.add_nodes([("/dev/nvidia0", true), ("/dev/nvidia1", false)]);
        footing.add_cdi_files([at("gpu.json")]);
        let check = |holds: bool, change: &dyn Fn(), undo: &dyn Fn()| {
            change();
            assert_eq!(footing.holds(), holds);
            undo();
            assert!(footing.holds());
        };
        let mv = |from: &str, to: &str| fs::rename(at(from), at(to)).unwrap();
        check(true, &|| (), &|| ());
        check(false, &|| mv("dev/nvidia0", "x"), &|| mv("x", "dev/nvidia0"));
        check(false, &|| mv("dev", "y"), &|| mv("y", "dev"));
        check(false, &|| fs::write(at("dev/nvidia1"), "").unwrap(), &|| {
            mv("dev/nvidia1", "z");
        });
        check(false, &|| mv("gpu.json", "x"), &|| mv("x", "gpu.json"));
        check(true, &|| fs::write(at("gpu.json"), "another's").unwrap(), &|| ());
        let strict = Footing {
            rule: DeviceRule::CharacterDevice,
            ..footing.clone()
        };
        assert!(!strict.holds(), "files are no nodes");
    }
}
