//! Whatever stands in the state file, it is read or refused, and what is read can be written.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    gpu_sim::fuzz::state(text);
});
