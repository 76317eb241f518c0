//! Entries for the fuzz targets in `fuzz/`: not for others.

use std::path::Path;

use crate::{
    NodeFile, mig,
    state::{GpuRecord, Record},
};

/// What is read must be written and read again as the same.
pub fn node_file(text: &str) {
    let path = Path::new("node.yaml");
    if let Ok(file) = NodeFile::parse(text, path) {
        let written = file.to_text(path).expect("what was read can be written");
        assert_eq!(
            NodeFile::parse(&written, path).expect("what was written can be read"),
            file
        );
    }
}

/// The same, and what is read can be counted with.
pub fn state(text: &str) {
    let path = Path::new("state/node");
    if let Ok(record) = Record::parse(text, path) {
        let written = record.to_text(path).expect("what was read can be written");
        assert_eq!(
            Record::parse(&written, path).expect("what was written can be read"),
            record
        );
        for gpu in record.gpus.values() {
            count(gpu);
        }
    }
}

fn count(gpu: &GpuRecord) {
    gpu.utilization();
    let tables = crate::boards().filter_map(|board| mig::find(board.mig.as_deref()?));
    for table in tables {
        for profile in &table.profiles {
            gpu.mig.remaining(table, profile);
            for instance in &gpu.mig.instances {
                instance.free(table, profile.slices);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{NodeSpec, driver, profile};

    /// A real text with a stretch of it replaced.
    fn broken(text: &str, at: usize, length: usize, by: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        let start = at % (bytes.len() + 1);
        let end = (start + length).min(bytes.len());
        bytes.splice(start..end, by.bytes());
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn node_text() -> String {
        let profile = profile::find("h100").unwrap();
        let file = NodeFile::new(&NodeSpec::new("h100").gpus(2), profile, driver::find("550").unwrap()).unwrap();
        file.to_text(Path::new("node.yaml")).unwrap()
    }

    fn state_text() -> String {
        let text = "{ version: 1, generation: 4, gpus: { GPU-1: {
            mig: { mode: true, pending: true, instances: [
                { id: 1, profile: 2, start: 4, compute: [{ id: 0, slices: 2, start: 0 }, { id: 1, slices: 1, start: 2 }] },
                { id: 13, profile: 0, start: 2, compute: [] } ] },
            processes: [{ pid: 7, memory_mib: 100, utilization: 50, instance: [1, 0] }] } } }";
        let path = Path::new("state/node");
        Record::parse(text, path).unwrap().to_text(path).unwrap()
    }

    proptest! {
        #[test]
        fn a_broken_file_is_read_or_refused(at in 0..4000_usize, length in 0..40_usize, by in "[ -~\\n]{0,12}") {
            node_file(&broken(&node_text(), at, length, &by));
            state(&broken(&state_text(), at, length, &by));
        }
    }
}
