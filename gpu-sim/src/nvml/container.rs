//! What a container may see: the GPUs whose device nodes it got, and of MIG instances those whose capability nodes it got.
//! Environment variables do not matter.

use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
};

use rustix::fs::{major, minor};

use super::code::{Answer, Code};
use crate::{
    GpuEntry, NodeFile,
    state::{GpuRecord, Record},
    tree,
};

/// Without the control node the real library says that no driver is loaded.
pub(super) fn check_control() -> Answer {
    let expected = (tree::NVIDIA, tree::CONTROL);
    if number(Path::new("/dev/nvidiactl")) == Some(expected) {
        Ok(())
    } else {
        Err(Code::DRIVER_NOT_LOADED)
    }
}

pub(super) fn has_device_node(gpu: &GpuEntry) -> bool {
    number(Path::new(&format!("/dev/nvidia{}", gpu.minor))) == Some((tree::NVIDIA, gpu.minor))
}

/// What a container sees of what has happened to a node: which GPUs are there, and how those that it has are partitioned, by the
/// instances whose capability nodes it has.
pub(super) fn visible(mut record: Record, node: &NodeFile) -> Record {
    let layouts = node.gpus.iter().filter_map(|gpu| {
        let GpuRecord { mut mig, unplugged, .. } = record.gpus.remove(&gpu.uuid)?;
        mig.instances.retain_mut(|instance| {
            let id = instance.id;
            let visible = |minor| has_capability_node(minor);
            instance
                .compute
                .retain(|compute| visible(tree::compute_instance(gpu.minor, id, compute.id)));
            visible(tree::gpu_instance(gpu.minor, id))
        });
        let seen = GpuRecord {
            mig,
            unplugged,
            ..GpuRecord::default()
        };
        Some((gpu.uuid.clone(), seen))
    });
    let gpus = layouts.collect();
    Record {
        gpus,
        ..Record::default()
    }
}

fn has_capability_node(minor: u32) -> bool {
    number(Path::new(&format!("/dev/nvidia-caps/nvidia-cap{minor}"))) == Some((tree::CAPABILITIES, minor))
}

/// Major and minor number of a character device.
fn number(path: &Path) -> Option<(u32, u32)> {
    let metadata = fs::metadata(path).ok()?;
    metadata
        .file_type()
        .is_char_device()
        .then(|| (major(metadata.rdev()), minor(metadata.rdev())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_character_device_has_a_number() {
        assert_eq!(number(Path::new("/dev/null")), Some((1, 3)));
        assert_eq!(number(Path::new("/proc/version")), None);
        assert_eq!(number(Path::new("/dev/absent")), None);
    }
}
