use gpu_core::{Gpu, Inventory, ProblemKind, RecoveryAction};

/// What a look at a GPU shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It answers, and nothing waits for a reset.
    Sound,
    /// It answers, and something is wrong with it.
    Broken(String),
    /// It answers, and waits for a reset of its own or of the machine; why, in words.
    WantsReset(String),
    /// A call about it has not returned yet, in words.
    Silent(String),
    /// It answers that it cannot be used, or is not there; why, in words.
    Away(String),
}

/// What a reading of the node says of a GPU that an earlier one has.
pub fn examine(inventory: &Inventory, gpu: &Gpu) -> Finding {
    if let Some(now) = inventory.gpu(&gpu.uuid) {
        return finding(now);
    }
    match inventory.problems.iter().find(|problem| problem.hides(gpu)) {
        Some(problem) if problem.kind == ProblemKind::Hung => Finding::Silent(problem.to_string()),
        Some(problem) => Finding::Away(problem.to_string()),
        None => Finding::Away("the driver does not list it".to_owned()),
    }
}

/// What the driver tells of the GPU, and the GPU of its own memory.
fn finding(gpu: &Gpu) -> Finding {
    use RecoveryAction::{DrainAndReset, Reboot, Reset};
    let wants = |action| format!("the driver wants {action}");
    let rows = gpu.remapped_rows.as_ref();
    match gpu.recovery_action {
        Some(action @ (Reset | Reboot | DrainAndReset)) => Finding::WantsReset(wants(action)),
        Some(action) => Finding::Broken(wants(action)),
        None if rows.is_some_and(|rows| rows.failed) => {
            Finding::Broken("a broken row of its memory could not be replaced".to_owned())
        }
        None if rows.is_some_and(|rows| rows.pending) => {
            Finding::WantsReset("a broken row of its memory waits for a reset to be replaced".to_owned())
        }
        None if gpu.page_retirement_pending == Some(true) => {
            Finding::WantsReset("broken pages of its memory wait for a reboot to be retired".to_owned())
        }
        None => Finding::Sound,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn gpu(more: &Value) -> Gpu {
        let mut gpu = json!({
            "index": 0, "minor": 0, "uuid": "GPU-00000000-0000-0000-0000-000000000000", "name": "x",
            "pci": { "address": "0000:1a:00.0", "id": "10de:2335" },
        });
        let fields = more.as_object().unwrap().clone();
        gpu.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(gpu).unwrap()
    }

    /// A GPU with this, and whether it is sound, is broken, or wants a reset, for which reason.
    #[track_caller]
    fn check(more: &Value, expected: &Finding) {
        let gpu = gpu(more);
        let inventory = Inventory {
            gpus: vec![gpu.clone()],
            ..Inventory::default()
        };
        assert_eq!(examine(&inventory, &gpu), *expected, "{more}");
    }

    fn rows(pending: bool, failed: bool) -> Value {
        json!({ "correctable": 3, "uncorrectable": 1, "pending": pending, "failed": failed })
    }

    #[test]
    fn what_the_driver_wants_done_and_what_memory_waits_for_are_found() {
        use Finding::{Broken, Sound, WantsReset};
        let wants = |action: &str| WantsReset(format!("the driver wants {action}"));
        let lives_with = |action: &str| Broken(format!("the driver wants {action}"));
        check(&json!({}), &Sound);
        check(&json!({ "recovery_action": "reset" }), &wants("a reset of the GPU"));
        check(
            &json!({ "recovery_action": "reboot" }),
            &wants("a reboot of the machine"),
        );
        let drain = "an end of the programs that use it";
        check(
            &json!({ "recovery_action": "drain_and_reset" }),
            &wants(&format!("{drain}, and a reset")),
        );
        // Neither is known to reset it: that it is over says nothing of a fatal Xid.
        check(
            &json!({ "recovery_action": "drain_peer_to_peer" }),
            &lives_with(&format!("{drain} with other GPUs")),
        );
        check(&json!({ "recovery_action": 9 }), &lives_with("recovery action 9"));

        let failed = || Broken("a broken row of its memory could not be replaced".to_owned());
        let pending = || WantsReset("a broken row of its memory waits for a reset to be replaced".to_owned());
        let pages = || WantsReset("broken pages of its memory wait for a reboot to be retired".to_owned());
        check(&json!({ "remapped_rows": rows(false, false) }), &Sound);
        check(&json!({ "remapped_rows": rows(true, false) }), &pending());
        check(&json!({ "remapped_rows": rows(false, true) }), &failed());
        check(&json!({ "page_retirement_pending": true }), &pages());
        check(&json!({ "page_retirement_pending": false }), &Sound);

        // What the driver wants comes first, then what no reset mends.
        let all = |action: &str| json!({ "recovery_action": action, "remapped_rows": rows(true, true), "page_retirement_pending": true });
        check(&all("reset"), &wants("a reset of the GPU"));
        check(
            &all("drain_peer_to_peer"),
            &lives_with(&format!("{drain} with other GPUs")),
        );
        check(
            &json!({ "remapped_rows": rows(true, true), "page_retirement_pending": true }),
            &failed(),
        );
        check(
            &json!({ "remapped_rows": rows(true, false), "page_retirement_pending": true }),
            &pending(),
        );
        check(
            &json!({ "remapped_rows": rows(false, false), "page_retirement_pending": true }),
            &pages(),
        );
    }

    #[test]
    fn a_gpu_that_is_not_read_is_silent_or_away() {
        let known = gpu(&json!({}));
        let found = |kind: Option<&str>| {
            let problems = kind.map(|kind| json!({ "index": 0, "kind": kind, "call": "c", "message": "m" }));
            let problems: Vec<_> = problems.into_iter().collect();
            let inventory = json!({ "gpus": [], "problems": problems });
            examine(&serde_json::from_value(inventory).unwrap(), &known)
        };
        assert!(matches!(found(Some("hung")), Finding::Silent(_)));
        for kind in ["lost", "unreadable"] {
            assert!(matches!(found(Some(kind)), Finding::Away(_)), "{kind}");
        }
        assert_eq!(found(None), Finding::Away("the driver does not list it".to_owned()));
    }
}
