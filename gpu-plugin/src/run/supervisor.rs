//! The node that is offered, followed.

use std::time::Duration;

use gpu_core::nvml::{NodeEvent, Watcher};
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{self, Instant},
};

use super::{
    LOOK_AGAIN,
    fleet::Fleet,
    gate::Gate,
    settings::Settings,
    start::no_gpu,
    wait::{off_the_runtime, until},
    ward::Ward,
    watch_node::watch_node,
};
use crate::{Error, Node, NodeConfig, Result, Sockets, Status, error::chain};

mod renewal;

/// How often it is looked whether something else than the GPUs is different: who owns them, device nodes and CDI files.
const ROUND: Duration = Duration::from_secs(2);

/// What is offered, and what happens to it.
pub(super) struct Supervisor {
    node: Node,
    config: NodeConfig,
    fleet: Fleet,
    ward: Ward,
    gate: Gate,
    events: mpsc::UnboundedSender<NodeEvent>,
    /// Tells the events; none where there is nothing to follow.
    watcher: Option<Watcher>,
    /// The remarks that were logged, so that each is logged once.
    said: Vec<String>,
    /// When the next round is.
    round: Instant,
    /// When the node is to be read anew, because it could not be.
    retry: Option<Instant>,
    /// Why it could not, so that it is said once.
    complaint: Option<String>,
    /// The configuration that the node could not be offered with, tried again when the node is another.
    refused: Option<NodeConfig>,
}

impl Supervisor {
    pub(super) fn new(
        node: Node,
        config: NodeConfig,
        sockets: &Sockets,
        events: mpsc::UnboundedSender<NodeEvent>,
    ) -> Result<Self> {
        // Before anything is offered: what happens from here on is seen.
        let watcher = watch_node(&node, &config, events.clone())?;
        Ok(Self {
            ward: Ward::new(config.health.clone()),
            gate: Gate::default(),
            node,
            config,
            fleet: Fleet::new(sockets.clone()),
            events,
            watcher,
            said: Vec::new(),
            round: Instant::now() + ROUND,
            retry: None,
            complaint: None,
            refused: None,
        })
    }

    /// Follows the node; an error ends it.
    pub(super) async fn follow(
        &mut self,
        mut happened: mpsc::UnboundedReceiver<NodeEvent>,
        settings: &mut Settings,
        reload: &Notify,
        status: &watch::Sender<Status>,
    ) -> Error {
        while let Ok(event) = happened.try_recv() {
            if let Err(replaced) = self.hear(event).await {
                return replaced;
            }
        }
        self.offer();
        let mut registrations = self.fleet.registrations();
        loop {
            self.tell(status);
            tokio::select! {
                error = self.fleet.failed() => return error,
                _ = registrations.changed() => {}
                Some(event) = happened.recv() => {
                    let changed = matches!(event, NodeEvent::Changed { .. });
                    if let Err(replaced) = self.hear(event).await {
                        return replaced;
                    }
                    if let Some(config) = self.refused.take_if(|_| changed) {
                        self.settle(config, status).await;
                    }
                }
                () = until(self.ward.next_look()) => {
                    // Nothing is known of health without it, and so nothing is looked at.
                    if let Some(library) = self.node.machine().library.clone() {
                        self.ward.look(library, &self.config);
                    }
                }
                seen = self.ward.seen() => self.looked(&seen).await,
                () = until(self.gate.next_look()) => {
                    if self.gate.look() {
                        self.fleet.offer(self.node.resources(), self.node.how(), &self.gate, self.ward.states());
                    }
                }
                // What could not be read or offered is tried again, and then all is.
                () = time::sleep_until(self.round), if self.retry.is_none() => {
                    if self.go_round().await
                        && let Some(config) = self.refused.take()
                    {
                        self.settle(config, status).await;
                    }
                }
                () = until(self.retry) => {
                    if let Err(replaced) = self.discover().await {
                        return replaced;
                    }
                }
                () = reload.notified() => {
                    tracing::info!("reading the node again");
                    if let Err(replaced) = self.reload().await {
                        return replaced;
                    }
                }
                () = settings.changed() => {
                    let config = settings.current();
                    self.settle(config, status).await;
                }
            }
        }
    }

    /// Ends all that is offered.
    pub(super) async fn end(&mut self) {
        self.fleet.end().await;
    }

    fn tell(&self, status: &watch::Sender<Status>) {
        let problems: Vec<_> = self.said.iter().chain(&self.complaint).cloned().collect();
        status.send_if_modified(|status| {
            let now = Status {
                ailments: self.ward.ailments(),
                refused: status.refused.clone(),
                ..self.fleet.status(self.gate.reason(), &problems)
            };
            let changed = *status != now;
            *status = now;
            changed
        });
    }

    /// Takes a configuration over, or keeps the one in force and says why.
    async fn settle(&mut self, config: NodeConfig, status: &watch::Sender<Status>) {
        let refused = self.reconfigure(config.clone()).await.err();
        self.refused = refused.is_some().then_some(config);
        let said = status.borrow().refused == refused;
        if let Some(reason) = refused.as_ref().filter(|_| !said) {
            tracing::error!("the configuration in force stays: {reason}");
        }
        status.send_if_modified(|status| {
            status.refused = refused;
            !said
        });
    }

    /// Brings what is served to what there is.
    fn offer(&mut self) {
        let problems = self.node.problems();
        for problem in problems.iter().filter(|problem| !self.said.contains(problem)) {
            tracing::warn!("{problem}");
        }
        if self.node.is_empty() {
            tracing::warn!("{}", no_gpu(&self.node));
        }
        self.said = problems;
        self.ward.keep_to(self.node.machine());
        self.gate.watch(self.node.how().mps.clone());
        self.fleet
            .offer(self.node.resources(), self.node.how(), &self.gate, self.ward.states());
    }

    /// Takes an event into account. An error where going on takes another process.
    async fn hear(&mut self, event: NodeEvent) -> Result<()> {
        match event {
            NodeEvent::Health(event) => self.ward.event(&event),
            NodeEvent::NotWatched(problem) => self.ward.not_watched(&problem),
            NodeEvent::Changed { changes, inventory } => {
                self.ward.node_changed(&changes, &inventory);
                self.node_changed(&changes, &inventory).await;
            }
            NodeEvent::Interrupted(error) if error.is_version_mismatch() => return Err(Error::DriverReplaced(error)),
            NodeEvent::Interrupted(error) => self.complain(&error),
            _ => {}
        }
        self.set_health();
        Ok(())
    }

    /// Takes into account what was seen of GPUs that are not healthy, or may not be.
    async fn looked(&mut self, seen: &gpu_core::Result<gpu_core::Inventory>) {
        self.ward.looked(seen, self.node.machine());
        self.set_health();
        // The watcher tells of no GPU that was lost and then is taken out.
        if let Ok(reading) = seen
            && let Some(left) = self.node.machine().without_the_gone(reading)
        {
            self.renew(left).await;
        }
    }

    fn set_health(&self) {
        self.fleet.set_health(&self.gate, self.ward.states());
    }

    /// Looks whether something else than the GPUs is different, and puts the node in force anew if it is. Whether it was.
    async fn go_round(&mut self) -> bool {
        self.round = Instant::now() + ROUND;
        if !self.node.stands() {
            tracing::info!("device nodes are other ones, or a CDI file is gone");
        } else if self.has_other_owners().await {
            tracing::info!("the GPUs have other owners");
        } else {
            return false;
        }
        self.renew(self.node.machine().clone()).await;
        if !self.node.stands() {
            self.round = Instant::now() + LOOK_AGAIN; // they are being made, or somebody takes them away
        }
        true
    }

    async fn has_other_owners(&mut self) -> bool {
        let Some(mut claims) = self.node.claims().take_if(|claims| !claims.are_untouched()) else {
            return false;
        };
        let (claims, hold) = off_the_runtime(move || {
            let hold = claims.still_hold();
            (claims, hold)
        })
        .await;
        *self.node.claims() = Some(claims);
        !hold
    }

    /// Part of the node cannot be read, or not be watched: it is tried again, and said once.
    fn complain(&mut self, error: &dyn std::error::Error) {
        let text = chain(error);
        if self.complaint.as_ref() != Some(&text) {
            tracing::error!("what is offered stays as it is, and the node is read again: {text}");
            self.complaint = Some(text);
        }
        self.retry.get_or_insert(Instant::now() + LOOK_AGAIN);
    }
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}
