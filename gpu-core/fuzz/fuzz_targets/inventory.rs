#![no_main]

use gpu_core::{Inventory, Plan};

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    if let Ok(inventory) = serde_json::from_slice::<Inventory>(text) {
        let written = serde_json::to_string(&inventory).expect("what was read is written");
        assert_eq!(serde_json::from_str::<Inventory>(&written).expect("what was written is read"), inventory);
        assert_eq!(inventory.diff(&inventory), []);
        for change in Inventory::default().diff(&inventory) {
            let _ = change.to_string();
        }
    }
    // A plan and an inventory from the same text, each half of it.
    let (plan, inventory) = text.split_at(text.iter().position(|&byte| byte == b'#').unwrap_or(text.len()));
    if let Ok(plan) = serde_json::from_slice::<Plan>(plan) {
        let inventory = serde_json::from_slice(inventory.get(1..).unwrap_or_default()).unwrap_or_default();
        if let Err(error) = plan.check(&inventory) {
            let _ = error.to_string();
        }
    }
});
