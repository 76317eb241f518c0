#![no_main]

libfuzzer_sys::fuzz_target!(|content: &[u8]| {
    if let Some(soname) = gpu_cdi::hook::fuzz::elf(content) {
        assert!(!soname.is_empty() && !soname.contains('/'), "{soname}");
    }
});
