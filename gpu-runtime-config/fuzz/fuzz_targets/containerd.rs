#![no_main]

//! A main file, and behind a form feed a drop-in that is ours to write or somebody else's.

use gpu_runtime_config::{
    Cdi, Plan, Settings, Snapshot,
    containerd::{self, Files, Placement, Version},
    revert,
};

const MAIN: &str = "/etc/containerd/config.toml";
const DROP_IN: &str = "/etc/containerd/conf.d/99-nvidia.toml";

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
    let (main, drop_in) = match text.split_once('\x0c') {
        Some((main, drop_in)) => (main, Some(drop_in)),
        None => (text, None),
    };
    let found = Files {
        main: Snapshot::new(MAIN, main),
        drop_in: drop_in.map_or_else(|| Snapshot::absent(DROP_IN), |text| Snapshot::new(DROP_IN, text)),
        imported: vec![],
        other: vec![],
    };
    let mut settings = Settings::vendor("/usr/local/nvidia/toolkit", "nvidia", text.len() % 2 == 0);
    settings.cdi = (text.len() % 3 != 0).then(Cdi::default);
    for daemon in [None, Some(Version { major: 1, minor: 7 }), Some(Version { major: 2, minor: 3 })] {
        let configure = |files: &Files, receipt| containerd::configure(files, daemon, Placement::Auto, &settings, receipt);
        let Ok(plan) = configure(&found, None) else { continue };
        let configured = after(&found, &plan);
        let again = configure(&configured, plan.receipt.as_ref()).expect("what was written is read");
        assert_eq!(again.changes, vec![], "twice");
        let Some(receipt) = plan.receipt else { continue };
        let back = revert(&[configured.main.clone(), configured.drop_in.clone()], &receipt).expect("reverts");
        assert_eq!(after(&configured, &back), found, "reverted");
    }
});
