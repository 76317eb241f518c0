#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| gpu_cdi::hook::fuzz::state(text));
