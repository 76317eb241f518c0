//! Until there is a node to offer.

use tokio::{
    sync::{Notify, watch},
    time,
};

use super::{LOOK_AGAIN, settings::Settings, wait::off_the_runtime};
use crate::{Node, NodeConfig, Result, Status, error::chain};

/// The node, once it has a GPU and can be offered, and the configuration that it is offered with.
pub(super) async fn node(
    settings: &mut Settings,
    reload: &Notify,
    status: &watch::Sender<Status>,
) -> Result<(Node, NodeConfig)> {
    let mut said = None;
    loop {
        let in_force = settings.current();
        let config = in_force.clone();
        let found = off_the_runtime(move || match Node::discover(&config) {
            // Ended here, off the runtime, as it was made.
            Ok(node) if node.is_empty() => Ok(Err(no_gpu(&node))),
            Ok(node) => Ok(Ok(node)),
            Err(error) if config.config.fail_on_init_error => Err(error),
            Err(error) => Ok(Err(chain(&error))),
        });
        match found.await? {
            Ok(node) => return Ok((node, in_force)),
            Err(reason) if said.as_ref() == Some(&reason) => {}
            Err(reason) => {
                tracing::warn!("{reason}; looking again every {} s", LOOK_AGAIN.as_secs());
                status.send_modify(|status| status.wait(reason.clone()));
                said = Some(reason);
            }
        }
        tokio::select! {
            () = time::sleep(LOOK_AGAIN) => {}
            () = reload.notified() => {}
            () = settings.changed() => {}
        }
    }
}

/// In words that, and why, there is nothing to offer.
pub(super) fn no_gpu(node: &Node) -> String {
    let mut text = "this node has no GPU to offer".to_owned();
    for (n, problem) in node.problems().iter().enumerate() {
        text.push_str(if n == 0 { ": " } else { "; " });
        text.push_str(problem);
    }
    text
}
