#![no_main]

use gpu_core::kmsg::LoggedXid;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    for line in String::from_utf8_lossy(text).lines() {
        if let Some(xid) = LoggedXid::parse(line) {
            assert!(line.contains(&xid.code.to_string()) || line.contains(&format!("0{}", xid.code)));
        }
    }
});
