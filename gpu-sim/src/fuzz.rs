//! Entries for the fuzz targets in `fuzz/`: not for others.

use std::path::Path;

use crate::{NodeFile, state::Record};

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

pub fn state(text: &str) {
    let path = Path::new("state/node");
    if let Ok(record) = Record::parse(text, path) {
        let written = record.to_text(path).expect("what was read can be written");
        assert_eq!(
            Record::parse(&written, path).expect("what was written can be read"),
            record
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{NodeSpec, driver, profile, state::GpuRecord};

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
        let mut record = Record::default();
        record.gpus.insert("GPU-1".to_owned(), GpuRecord::default());
        record.to_text(Path::new("state/node")).unwrap()
    }

    proptest! {
        #[test]
        fn a_broken_file_is_read_or_refused(at in 0..4000_usize, length in 0..40_usize, by in "[ -~\\n]{0,12}") {
            node_file(&broken(&node_text(), at, length, &by));
            state(&broken(&state_text(), at, length, &by));
        }
    }
}
