//! The configuration that is wanted.

use tokio::sync::watch;

use crate::NodeConfig;

/// The configuration, which may never change again.
pub(super) struct Settings(pub(super) watch::Receiver<NodeConfig>);

impl Settings {
    pub(super) fn current(&mut self) -> NodeConfig {
        self.0.borrow_and_update().clone()
    }

    pub(super) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
