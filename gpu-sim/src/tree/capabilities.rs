//! What shows of MIG instances: their capability files under `/proc` and the device nodes that grant access to them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use super::{Tree, dev, proc};
use crate::{Error, NodeFile, Result, state::Record};

/// Brings the tree to what is true now: makes what is missing, removes what is too much, leaves the rest alone.
pub(crate) fn show_mig(root: &Path, node: &NodeFile, record: &Record) -> Result<()> {
    let tree = Tree { root };
    let mut files = BTreeMap::new();
    for gpu in &node.gpus {
        for instance in &record.gpu(&gpu.uuid).mig.instances {
            let folder = format!("{}/gi{}", folder(gpu.minor), instance.id);
            files.insert(format!("{folder}/access"), proc::gpu_instance(gpu.minor, instance.id));
            for compute in &instance.compute {
                let minor = proc::compute_instance(gpu.minor, instance.id, compute.id);
                files.insert(format!("{folder}/ci{}/access", compute.id), minor);
            }
        }
    }

    let minors: BTreeSet<u32> = files.values().copied().collect();
    for minor in existing_nodes(root)?.difference(&minors) {
        remove(&root.join(node_path(*minor)), |path| fs::remove_file(path))?;
    }
    for gpu in &node.gpus {
        prune(root, &folder(gpu.minor), &files)?;
    }
    for (path, minor) in &files {
        if !root.join(path).exists() {
            tree.file(path, 0o444, proc::capability(*minor, 0o444))?;
        }
        let device = node_path(*minor);
        if !root.join(&device).exists() {
            tree.device(&device, dev::CAPABILITIES, *minor, 0o444)?;
        }
    }
    Ok(())
}

fn folder(gpu: u32) -> String {
    format!("proc/driver/nvidia/capabilities/gpu{gpu}/mig")
}

fn node_path(minor: u32) -> String {
    format!("dev/nvidia-caps/nvidia-cap{minor}")
}

/// Numbers of the device nodes that are there for instances; the first two are for all of MIG.
fn existing_nodes(root: &Path) -> Result<BTreeSet<u32>> {
    let names = names(&root.join("dev/nvidia-caps"))?;
    let number = |name: &String| name.strip_prefix("nvidia-cap")?.parse().ok();
    Ok(names.iter().filter_map(number).filter(|minor| *minor > 2).collect())
}

/// Removes folders of instances that no file belongs in.
fn prune(root: &Path, folder: &str, files: &BTreeMap<String, u32>) -> Result<()> {
    for name in names(&root.join(folder))?.iter().filter(|name| *name != "access") {
        let path = format!("{folder}/{name}");
        if files.contains_key(&format!("{path}/access")) {
            prune(root, &path, files)?;
        } else {
            remove(&root.join(&path), |path| fs::remove_dir_all(path))?;
        }
    }
    Ok(())
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::read(folder))?,
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}

fn remove(path: &Path, remove: impl FnOnce(&Path) -> io::Result<()>) -> Result<()> {
    match remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(Error::write(path)),
    }
}
