#![no_main]

use gpu_core::Inventory;
use gpu_sharing::mig::parted::{Checkpoint, Configs, Form, Hooks};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let node = Inventory::default();
    if let Ok(configs) = Configs::parse(text) {
        for written in [configs.to_yaml(Form::Generated), configs.to_json(Form::Exported)] {
            assert_eq!(Configs::parse(&written).as_ref(), Ok(&configs), "{written}");
        }
        for name in configs.configs.keys() {
            let _ = configs.named(Some(name)).map(|config| config.select(&node));
        }
    }
    let _ = Hooks::parse(text);
    if let Ok(checkpoint) = Checkpoint::parse(text) {
        assert_eq!(Checkpoint::parse(&checkpoint.to_json()).as_ref(), Ok(&checkpoint));
        let _ = checkpoint.select(&node);
    }
});
