#![no_main]

use std::{fs, sync::LazyLock};

use tempfile::TempDir;

/// The root of a container.
static ROOT: LazyLock<TempDir> = LazyLock::new(|| {
    let root = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir_all(root.path().join("etc/ld.so.conf.d")).expect("a new folder");
    root
});

libfuzzer_sys::fuzz_target!(|content: &[u8]| {
    // Up to three files, so that an `include` has something to find.
    let mut files = content.splitn(3, |&byte| byte == b'#');
    for name in ["ld.so.conf", "ld.so.conf.d/a.conf", "ld.so.conf.d/b.conf"] {
        let content = files.next().unwrap_or_default();
        fs::write(ROOT.path().join("etc").join(name), content).expect("a written file");
    }
    gpu_cdi::hook::fuzz::ld_so_conf(ROOT.path());
});
