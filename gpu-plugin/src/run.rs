use std::{convert::Infallible, future::Future, pin::pin, sync::Arc, time::Duration};

use tokio::{sync::Notify, task, time};

use crate::{Node, NodeConfig, Result, Sockets, error::chain, serve};

/// Between looks at a node that has no driver or no GPU yet.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Offers the GPUs of this node to the kubelet until `stop` completes.
///
/// A node that has no GPU yet is looked at again every ten seconds, and so is one that cannot be read unless
/// [`fail_on_init_error`](NodeConfig::fail_on_init_error) is set. `reload` has the node looked at at once, also one that is
/// served: the kubelet is then sent the GPUs that there are now, over the stream that it has. If they cannot be read, those
/// known before go on being served.
///
/// Dropping the future ends it as well, and at once. A call that hangs in the driver keeps its thread, and neither `stop`
/// nor the drop waits for it: end the runtime with a timeout.
///
/// # Errors
/// As [`Node::discover`] and [`serve`].
pub async fn run(
    config: &NodeConfig,
    sockets: &Sockets,
    reload: &Notify,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let mut stop = pin!(stop);
    let node = tokio::select! {
        () = &mut stop => return Ok(()),
        node = discover_when_possible(config, reload) => node?,
    };
    let resource = Arc::clone(node.resource());
    tokio::select! {
        result = serve(resource, sockets, stop) => result,
        never = keep_current(node, config, reload) => match never {},
    }
}

async fn discover_when_possible(config: &NodeConfig, reload: &Notify) -> Result<Node> {
    let mut said = None;
    loop {
        let found = off_the_runtime({
            let config = config.clone();
            move || match Node::discover(&config) {
                // Ended here, off the runtime, as it was made.
                Ok(node) if node.is_empty() => Ok(Err(no_gpu(&node))),
                Ok(node) => Ok(Ok(node)),
                Err(error) if config.fail_on_init_error => Err(error),
                Err(error) => Ok(Err(chain(&error))),
            }
        });
        match found.await? {
            Ok(node) => {
                warn_of(&node);
                return Ok(node);
            }
            Err(reason) if said.as_ref() == Some(&reason) => {}
            Err(reason) => {
                tracing::warn!("{reason}; looking again every {} s", LOOK_AGAIN.as_secs());
                said = Some(reason);
            }
        }
        let _ = time::timeout(LOOK_AGAIN, reload.notified()).await;
    }
}

/// Reads the node again whenever it is told to.
async fn keep_current(mut node: Node, config: &NodeConfig, reload: &Notify) -> Infallible {
    loop {
        reload.notified().await;
        tracing::info!("reading the node again");
        let config = config.clone();
        // The reading owns the node meanwhile, so that the old one also ends off the runtime.
        node = off_the_runtime(move || match node.rediscover(&config) {
            Ok(now) => {
                warn_of(&now);
                if now.is_empty() {
                    tracing::warn!("{}", no_gpu(&now));
                }
                now
            }
            Err(error) => {
                tracing::error!("the GPUs stay as they were: {}", chain(&error));
                node
            }
        })
        .await;
    }
}

/// A panic there is a panic here.
async fn off_the_runtime<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only a runtime that ends cancels it, and that ends this future too.
            Err(_) => std::future::pending().await,
        },
    }
}

fn no_gpu(node: &Node) -> String {
    let mut text = "this node has no GPU to offer".to_owned();
    for (n, problem) in node.problems().iter().enumerate() {
        text.push_str(if n == 0 { ": " } else { "; " });
        text.push_str(problem);
    }
    text
}

fn warn_of(node: &Node) {
    for problem in node.problems() {
        tracing::warn!("{problem}");
    }
}
