//! Whatever stands in `node.yaml`, it is read or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    gpu_sim::fuzz::node_file(text);
});
