#![no_main]

//! A receipt, and behind a form feed the file that it may be about.

use gpu_runtime_config::{Receipt, Snapshot, revert};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let (receipt, file) = text.split_once('\x0c').unwrap_or((text, ""));
    let Ok(receipt) = Receipt::from_json(receipt) else {
        return;
    };
    assert_eq!(Receipt::from_json(&receipt.to_json()).expect("what was written"), receipt);
    let found: Vec<_> = receipt.paths().map(|path| Snapshot::new(path, file)).collect();
    let _ = revert(&found, &receipt);
});
