#![no_main]

use gpu_cdi::{Format, Spec};

libfuzzer_sys::fuzz_target!(|text: &str| {
    for format in [Format::Json, Format::Yaml] {
        let Ok(spec) = Spec::from_text(text, format) else {
            continue;
        };
        let _ = spec.required_version();
        if spec.validate().is_err() {
            continue;
        }
        for format in [Format::Json, Format::Yaml] {
            let written = spec.to_text(format).expect("a text");
            let read = Spec::from_text(&written, format).expect("what was written");
            assert_eq!(read, spec, "{written}");
        }
    }
});
