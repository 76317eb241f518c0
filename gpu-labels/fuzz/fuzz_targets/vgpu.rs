#![no_main]

use gpu_labels::{LabelValue, gpu_core::VgpuHost};

libfuzzer_sys::fuzz_target!(|config: &[u8]| {
    let Ok(Some(host)) = VgpuHost::parse(config) else {
        return;
    };
    for text in [host.driver_version, host.driver_branch].into_iter().flatten() {
        // Ten bytes, each of which may have become a replacement character of three.
        assert!(!text.is_empty() && text.len() <= 30, "{text:?}");
        let value = LabelValue::sanitized(&text);
        value.as_str().parse::<LabelValue>().expect("a value");
    }
});
