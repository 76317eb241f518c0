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
