#![no_main]

libfuzzer_sys::fuzz_target!(|content: &[u8]| {
    let paths = gpu_cdi::hook::fuzz::ld_cache(content);
    for (i, path) in paths.iter().enumerate() {
        assert!(path.starts_with('/') && !paths[..i].contains(path), "{path}");
    }
});
