#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Some(container) = gpu_core::Container::from_cgroup(text) {
        assert_eq!(container.id.len(), 64);
        assert!(text.contains(&container.id));
    }
});
