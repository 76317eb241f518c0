use std::{future::Future, pin::pin, time::Duration};

use tokio::sync::{Notify, mpsc, watch};

use self::{settings::Settings, supervisor::Supervisor};
use crate::{NodeConfig, Result, Sockets, Status};

mod fleet;
mod gate;
mod settings;
mod start;
mod supervisor;
mod wait;
mod ward;
mod watch_node;

/// Between looks at a node that has no driver or no GPU yet, or that cannot be offered as it is.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Offers the GPUs of this node to the kubelet until `stop` completes, each resource on a socket of its own.
///
/// A node that has no GPU yet is looked at again every ten seconds, and so is one that cannot be read unless
/// [`fail_on_init_error`](gpu_sharing::config::Config::fail_on_init_error) is set. From then on it follows the node: MIG
/// layouts, GPUs that come and go or get other [owners](NodeConfig::owners), device nodes that come and go, CDI files that
/// somebody removed, a driver that is loaded anew, and the health of the GPUs. Where NVML does not tell GPUs apart
/// ([`Node::platform`](crate::Node::platform)) the files alone are followed.
///
/// Only what has changed is changed: a resource that stays keeps its socket and its stream; one that has nothing left is
/// emptied, and ended once no pod has a device of it, which the kubelet tells at [`Sockets::pod_resources`].
///
/// A new `config` is taken over while the node is served; where the node cannot be offered so, the old one stays, and that is
/// logged. `reload` has the node looked at at once, and what happened to its GPUs forgotten; one that still cannot be read
/// stays offered, and unhealthy, until it is taken out. `status` is told what is offered whenever that changes.
///
/// Dropping the future ends it as well, and at once. A call that hangs in the driver keeps its thread, and neither `stop`
/// nor the drop waits for it: end the runtime with a timeout.
///
/// # Errors
/// As [`Node::discover`](crate::Node::discover) and [`serve`](crate::serve);
/// [`Error::DriverReplaced`](crate::Error::DriverReplaced) where the driver was replaced meanwhile.
pub async fn run(
    config: watch::Receiver<NodeConfig>,
    sockets: &Sockets,
    reload: &Notify,
    status: &watch::Sender<Status>,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let mut stop = pin!(stop);
    let mut config = Settings(config);
    let (node, in_force) = tokio::select! {
        () = &mut stop => return Ok(()),
        node = start::node(&mut config, reload, status) => node?,
    };
    let (events, happened) = mpsc::unbounded_channel();
    let mut supervisor = Supervisor::new(node, in_force, sockets, events)?;
    let result = tokio::select! {
        () = &mut stop => Ok(()),
        error = supervisor.follow(happened, &mut config, reload, status) => Err(error),
    };
    supervisor.end().await;
    result
}
