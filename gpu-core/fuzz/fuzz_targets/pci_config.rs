#![no_main]

use gpu_core::VgpuHost;

libfuzzer_sys::fuzz_target!(|config: &[u8]| {
    // As it came, and as the start of a whole space: a short one is never looked into.
    let _ = VgpuHost::parse(config);
    let mut space = [0; 256];
    let length = config.len().min(space.len());
    space[..length].copy_from_slice(&config[..length]);
    match VgpuHost::parse(&space) {
        Ok(host) => drop(format!("{host:?}")),
        Err(error) => drop(error.to_string()),
    }
});
