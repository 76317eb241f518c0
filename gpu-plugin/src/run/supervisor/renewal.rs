//! Putting a node in force that is another, or offered otherwise.

use gpu_core::{Change, Inventory};
use tokio::time::Instant;

use super::{LOOK_AGAIN, Supervisor, Ward, off_the_runtime, watch_node};
use crate::{Error, Node, NodeConfig, Result, error::chain, node::Machine};

impl Supervisor {
    /// The driver tells of changes.
    pub(super) async fn node_changed(&mut self, changes: &[Change], reading: &Inventory) {
        let is_update = |change: &Change| matches!(change, Change::Updated { .. });
        if changes.iter().all(is_update) {
            return;
        }
        for change in changes {
            // Of one that is lost its health tells.
            if !is_update(change) && !matches!(change, Change::Lost { .. }) {
                tracing::info!("{change}");
            }
        }
        let machine = self.node.machine();
        let later = machine.with(reading.clone()).keeping(&machine.inventory);
        self.renew(later).await;
    }

    /// Offers what this machine has; where that is not possible, only what it still has of what was offered, and the node is read
    /// again later.
    pub(super) async fn renew(&mut self, machine: Machine) {
        let config = self.config.clone();
        let inventory = machine.inventory.clone();
        let renewed = off_the_runtime(move || Node::of(machine, &config));
        match renewed.await {
            Ok(node) => self.node = node,
            Err(error) => {
                let text = chain(&error);
                tracing::error!("of what was offered what is still there stays, and nothing new is: {text}");
                self.node.shrink(inventory);
                self.complaint = Some(text);
                self.retry.get_or_insert(Instant::now() + LOOK_AGAIN);
            }
        }
        self.offer();
    }

    /// Reads the node anew, and forgets what happened to the GPUs that are read. The driver stays open and the watch goes on where
    /// nothing is amiss; else both begin anew. An error where that takes another process.
    pub(super) async fn reload(&mut self) -> Result<()> {
        let sound = self.complaint.take().is_none() && self.ward.is_empty();
        let (machine, config) = (self.node.machine().clone(), self.config.clone());
        let Some(library) = machine.library.clone().filter(|_| sound) else {
            return self.discover_and(Ward::forget).await;
        };
        let read = off_the_runtime(move || {
            let inventory = library.inventory(&config.host_root)?;
            Node::of(machine.with(inventory).keeping(&machine.inventory), &config)
        });
        match read.await {
            Ok(node) => {
                self.retry = None;
                self.node = node;
                self.offer();
                Ok(())
            }
            Err(_) => self.discover().await,
        }
    }

    /// Opens the driver and reads the node anew. An error where that takes another process.
    pub(super) async fn discover(&mut self) -> Result<()> {
        self.discover_and(|_, _| ()).await
    }

    /// The same, and does this with what is known of health once the node is read.
    async fn discover_and(&mut self, once_read: impl FnOnce(&mut Ward, &Machine)) -> Result<()> {
        self.retry = None;
        let (config, before) = (self.config.clone(), self.node.inventory().clone());
        match off_the_runtime(move || Node::discover_after(&before, &config)).await {
            Ok(node) => {
                once_read(&mut self.ward, node.machine());
                self.take(node);
            }
            Err(Error::Hardware(error)) if error.is_version_mismatch() => return Err(Error::DriverReplaced(error)),
            Err(error) => self.complain(&error),
        }
        Ok(())
    }

    fn take(&mut self, node: Node) {
        self.complaint = None;
        match watch_node(&node, &self.config, self.events.clone()) {
            Ok(watcher) => self.watcher = watcher,
            Err(error) => self.complain(&error),
        }
        self.node = node;
        self.offer();
    }

    /// Takes another configuration over, or keeps the old one and says why.
    pub(super) async fn reconfigure(&mut self, config: NodeConfig) -> Result<(), String> {
        if config == self.config {
            return Ok(());
        }
        let same_machine = config.reads_the_same(&self.config);
        let machine = self.node.machine().clone();
        let renewed = off_the_runtime({
            let config = config.clone();
            move || {
                if same_machine {
                    Node::of(machine, &config)
                } else {
                    Node::discover_after(&machine.inventory, &config)
                }
            }
        });
        let node = renewed.await.map_err(|error| chain(&error))?;
        tracing::info!("the new configuration is in force");
        self.ward.set_policy(config.health.clone());
        self.config = config;
        if same_machine {
            self.node = node;
            self.offer();
        } else {
            self.take(node);
        }
        Ok(())
    }
}
