use gpu_core::{Gpu, GpuUuid, Inventory, Problem};

/// What a look at a GPU shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It answers, and nothing waits for a reset.
    Sound,
    /// It answers, and something is wrong with it.
    Broken(String),
    /// It does not answer, or is not there; why, in words.
    Away(String),
}

/// What a reading of the node says of one GPU.
pub fn examine(inventory: &Inventory, gpu: &GpuUuid) -> Finding {
    match inventory.gpu(gpu) {
        Some(gpu) => ailment(gpu).map_or(Finding::Sound, Finding::Broken),
        None => Finding::Away(
            inventory
                .problems
                .iter()
                .find(|problem| problem.uuid.as_ref() == Some(gpu))
                .map_or_else(|| "the driver does not list it".to_owned(), Problem::to_string),
        ),
    }
}

/// What the driver tells of the GPU, and the GPU of its own memory.
fn ailment(gpu: &Gpu) -> Option<String> {
    match gpu.recovery_action {
        Some(action) => Some(format!("the driver wants {action}")),
        None => memory(gpu).map(str::to_owned),
    }
}

fn memory(gpu: &Gpu) -> Option<&'static str> {
    let rows = gpu.remapped_rows.as_ref();
    if rows.is_some_and(|rows| rows.failed) {
        Some("a broken row of its memory could not be replaced")
    } else if rows.is_some_and(|rows| rows.pending) {
        Some("a broken row of its memory waits for a reset to be replaced")
    } else if gpu.page_retirement_pending == Some(true) {
        Some("broken pages of its memory wait for a reboot to be retired")
    } else {
        None
    }
}
