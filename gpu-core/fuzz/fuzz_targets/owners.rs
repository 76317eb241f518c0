#![no_main]

use std::{fs, sync::LazyLock};

use gpu_core::ownership::{Owner, OwnerFile};
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    let path = FOLDER.path().join("owners.json");
    fs::write(&path, text).expect("a written file");
    let file = OwnerFile::new(&path);
    match file.read() {
        Ok(owners) => {
            // What is claimed is claimed for good, and the others' claims stay.
            let gpu = "GPU-7a675969-0a3d-4f9c-8a6e-1b2c3d4e5f60".parse().expect("a UUID");
            let mut expected = owners;
            if file.claim(Owner::Dra, std::slice::from_ref(&gpu)).is_ok() {
                let found = file.read().expect("what was written is read");
                expected.owners.insert(gpu.clone(), found.owners[&gpu].clone());
                assert_eq!(found, expected);
            }
        }
        Err(error) => {
            let _ = error.to_string();
            assert_eq!(fs::read(&path).expect("the file is there"), text, "what is not understood is kept");
        }
    }
});
