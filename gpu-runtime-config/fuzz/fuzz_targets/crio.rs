#![no_main]

use gpu_runtime_config::{
    Plan, Settings, Snapshot,
    crio::{self, Files},
    revert,
};

const DROP_IN: &str = "/etc/crio/crio.conf.d/99-nvidia.toml";

fn after(files: &Files, plan: &Plan) -> Files {
    let text = |found: &Snapshot| Snapshot {
        path: found.path.clone(),
        text: match plan.changes.iter().find(|change| change.path == found.path) {
            Some(change) => change.after.clone(),
            None => found.text.clone(),
        },
    };
    Files {
        main: text(&files.main),
        drop_in: text(&files.drop_in),
        ..files.clone()
    }
}

libfuzzer_sys::fuzz_target!(|text: &str| {
    let found = Files {
        main: Snapshot::new("/etc/crio/crio.conf", text),
        drop_in: Snapshot::absent(DROP_IN),
        dropped_in: vec![],
        other: vec![],
    };
    let settings = Settings::vendor("/usr/local/nvidia/toolkit", "nvidia", text.len() % 2 == 0);
    let Ok(plan) = crio::configure(&found, &settings, None) else {
        return;
    };
    let configured = after(&found, &plan);
    assert_eq!(configured.main, found.main, "the main file is CRI-O's own");
    let Some(receipt) = plan.receipt else { return };
    let back = revert(&[configured.main.clone(), configured.drop_in.clone()], &receipt).expect("reverts");
    assert_eq!(after(&configured, &back), found, "reverted");
});
