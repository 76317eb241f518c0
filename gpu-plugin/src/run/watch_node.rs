//! Following what NVML tells of a node.

use std::{ops::ControlFlow, time::Duration};

use gpu_core::nvml::{NodeEvent, WatchConfig, Watcher};
use tokio::sync::mpsc;

use crate::{Node, NodeConfig};

/// How often the watcher asks which GPUs and MIG devices there are.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// Has the events of the node sent; none where there is nothing to follow.
pub(super) fn watch_node(
    node: &Node,
    config: &NodeConfig,
    events: mpsc::UnboundedSender<NodeEvent>,
) -> gpu_core::Result<Option<Watcher>> {
    let Some(library) = node.machine().library.clone() else {
        tracing::info!(
            "the GPUs of {} are one device, of which nothing is followed",
            node.platform()
        );
        return Ok(None);
    };
    let watching = WatchConfig {
        host_root: config.host_root.clone(),
        interval: WATCH_INTERVAL,
        ..WatchConfig::default()
    };
    let deliver = move |event| match events.send(event) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    Watcher::start(library, node.machine().reading(), watching, deliver).map(Some)
}
