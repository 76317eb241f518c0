#![no_main]

use gpu_runtime_config::{Cdi, Plan, Settings, Snapshot, docker, revert};

fn after(found: &Snapshot, plan: &Plan) -> Snapshot {
    Snapshot {
        path: found.path.clone(),
        text: match plan.changes.iter().find(|change| change.path == found.path) {
            Some(change) => change.after.clone(),
            None => found.text.clone(),
        },
    }
}

libfuzzer_sys::fuzz_target!(|text: &str| {
    let found = Snapshot::new("/etc/docker/daemon.json", text);
    let mut settings = Settings::vendor("/usr/local/nvidia/toolkit", "nvidia", text.len() % 2 == 0);
    settings.cdi = (text.len() % 3 != 0).then(Cdi::default);
    let Ok(plan) = docker::configure(&found, &[], &settings, None) else {
        return;
    };
    let configured = after(&found, &plan);
    let again = docker::configure(&configured, &[], &settings, plan.receipt.as_ref()).expect("what was written is read");
    assert_eq!(again.changes, vec![], "twice");
    let Some(receipt) = plan.receipt else { return };
    let back = revert(std::slice::from_ref(&configured), &receipt).expect("reverts");
    assert_eq!(after(&configured, &back), found, "reverted");
});
