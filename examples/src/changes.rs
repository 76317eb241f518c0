//! Being told that the GPUs of the node have changed.

use std::{ops::ControlFlow, path::PathBuf, sync::Arc, time::Duration};

use gpu_core::{
    Inventory, Result,
    nvml::{Library, NodeEvent, WatchConfig, Watcher},
};
use tokio::sync::mpsc::UnboundedSender;

/// How often the watcher looks: labels follow a change of the MIG layout within five seconds.
const INTERVAL: Duration = Duration::from_secs(2);

/// Has every change since this inventory told; to ask for it is a call into the driver.
pub(crate) fn watch(
    library: &Arc<Library>,
    inventory: &Inventory,
    host_root: PathBuf,
    changes: UnboundedSender<()>,
) -> Result<Watcher> {
    let config = WatchConfig {
        host_root,
        interval: INTERVAL,
        ..WatchConfig::default()
    };
    let tell = move |event| match event {
        NodeEvent::Changed { .. } if changes.send(()).is_err() => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    Watcher::start(Arc::clone(library), inventory.clone(), config, tell)
}
