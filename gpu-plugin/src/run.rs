use std::{future::Future, ops::ControlFlow, pin::pin, time::Duration};

use gpu_core::{
    Change, Inventory,
    nvml::{NodeEvent, WatchConfig, Watcher},
};
use tokio::{
    sync::{Notify, mpsc, watch},
    task::{self, JoinHandle},
    time::{self, Instant},
};

use self::{fleet::Fleet, gate::Gate};
use crate::{
    Error, Finding, Health, HealthChange, HealthStates, Node, NodeConfig, Result, Sockets, Status, error::chain,
    examine, status::Ailments,
};

mod fleet;
mod gate;

/// Between looks at a node that has no driver or no GPU yet.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// How often it is looked whether something else than the GPUs is different: who owns them.
const ROUND: Duration = Duration::from_secs(1);

/// How often the watcher asks which GPUs and MIG devices there are.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// Offers the GPUs of this node to the kubelet until `stop` completes, each resource on a socket of its own.
///
/// A node that has no GPU yet is looked at again every ten seconds, and so is one that cannot be read unless
/// [`fail_on_init_error`](gpu_sharing::config::Config::fail_on_init_error) is set. From then on it follows the node: MIG
/// layouts, GPUs that come and go or get other [owners](NodeConfig::owners), a driver that is loaded anew, and the health of the GPUs. Only what has changed is changed:
/// a resource that stays keeps its socket and its stream, one that has nothing left is emptied and then ended. Where NVML does not
/// tell GPUs apart ([`Node::platform`]) there is nothing to follow.
///
/// A new `config` is taken over while the node is served; where the node cannot be offered so, the old one stays, and that is
/// logged. `reload` has the node looked at at once, and all that happened to its GPUs forgotten. `status` is told what is
/// offered whenever that changes.
///
/// Dropping the future ends it as well, and at once. A call that hangs in the driver keeps its thread, and neither `stop`
/// nor the drop waits for it: end the runtime with a timeout.
///
/// # Errors
/// As [`Node::discover`] and [`serve`](crate::serve); [`Error::DriverReplaced`] where the driver was replaced meanwhile.
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
        node = discover_when_possible(&mut config, reload, status) => node?,
    };
    let (events, happened) = mpsc::unbounded_channel();
    let mut supervisor = Supervisor::new(node, in_force, sockets, events)?;
    let result = tokio::select! {
        () = &mut stop => Ok(()),
        error = supervisor.follow(happened, &mut config, reload, status) => Err(error),
    };
    supervisor.fleet.end().await;
    result
}

/// The configuration, which may never change again.
struct Settings(watch::Receiver<NodeConfig>);

impl Settings {
    fn current(&mut self) -> NodeConfig {
        self.0.borrow_and_update().clone()
    }

    async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn discover_when_possible(
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

/// What is offered, and what happens to it.
struct Supervisor {
    node: Node,
    config: NodeConfig,
    fleet: Fleet,
    health: HealthStates,
    gate: Gate,
    /// What is told of health.
    ailments: Ailments,
    /// What health counts its times from.
    started: Instant,
    events: mpsc::UnboundedSender<NodeEvent>,
    /// Tells the events; none where there is nothing to follow.
    watcher: Option<Watcher>,
    /// The remarks that were logged, so that each is logged once.
    said: Vec<String>,
    /// The look at GPUs that goes on.
    looking: Option<JoinHandle<gpu_core::Result<Inventory>>>,
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
    fn new(
        node: Node,
        config: NodeConfig,
        sockets: &Sockets,
        events: mpsc::UnboundedSender<NodeEvent>,
    ) -> Result<Self> {
        // Before anything is offered: what happens from here on is seen.
        let watcher = watch_node(&node, &config, events.clone())?;
        Ok(Self {
            health: HealthStates::new(config.health.clone()),
            gate: Gate::default(),
            ailments: Ailments::default(),
            node,
            config,
            fleet: Fleet::new(sockets.clone()),
            started: Instant::now(),
            events,
            watcher,
            said: Vec::new(),
            looking: None,
            round: Instant::now() + ROUND,
            retry: None,
            complaint: None,
            refused: None,
        })
    }

    /// Follows the node; an error ends it.
    async fn follow(
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
            status.send_if_modified(|status| {
                let now = Status {
                    ailments: self.ailments.told(&self.health),
                    refused: status.refused.clone(),
                    ..self.fleet.status(self.gate.reason(), &self.problems())
                };
                let changed = *status != now;
                *status = now;
                changed
            });
            let look = self.health.next_look().map(|at| self.started + at);
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
                () = until(look), if self.looking.is_none() => self.look(),
                reading = finished(&mut self.looking) => self.looked(&reading),
                () = until(self.gate.next_look()) => {
                    if self.gate.look() {
                        self.fleet.offer(self.node.resources(), self.node.how(), &self.gate, &self.health);
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

    /// What is amiss: of the node, and why it could not be read or offered as it is.
    fn problems(&self) -> Vec<String> {
        self.said.iter().chain(&self.complaint).cloned().collect()
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
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
        let gpus = self.node.inventory();
        self.health.retain(|gpu| gpus.gpu(gpu).is_some());
        self.gate.watch(self.node.how().mps.clone());
        self.fleet
            .offer(self.node.resources(), self.node.how(), &self.gate, &self.health);
    }

    /// Takes an event into account. An error where going on takes another process.
    async fn hear(&mut self, event: NodeEvent) -> Result<()> {
        let now = self.now();
        match event {
            NodeEvent::Health(event) => {
                let change = self.health.event(now, &event);
                if change.is_none() {
                    tracing::info!(gpu = %event.gpu, "{:?}: the health of the GPU stays", event.kind);
                }
                self.health_changed(change);
            }
            NodeEvent::NotWatched(problem) => {
                let change = self.health.not_watched(now, &problem);
                if change.is_none() {
                    tracing::warn!("no health events: {problem}");
                }
                self.health_changed(change);
            }
            NodeEvent::Changed { changes, inventory } => self.node_changed(&changes, &inventory).await,
            NodeEvent::Interrupted(error) if error.is_version_mismatch() => return Err(Error::DriverReplaced(error)),
            NodeEvent::Interrupted(error) => self.complain(&error),
            _ => {}
        }
        Ok(())
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

    fn health_changed(&mut self, changes: impl IntoIterator<Item = HealthChange>) {
        for change in changes {
            self.ailments.note(&change);
            match change.to {
                Health::Unhealthy => tracing::error!("{change}"),
                Health::Suspect => tracing::warn!("{change}"),
                Health::Healthy => tracing::info!("{change}"),
            }
        }
        self.fleet.set_health(&self.gate, &self.health);
    }

    async fn node_changed(&mut self, changes: &[Change], inventory: &Inventory) {
        let now = self.now();
        let mut health = Vec::new();
        for change in changes {
            match change {
                Change::Lost { gpu, problem } => health.extend(self.health.lost(now, gpu, problem)),
                Change::Driver => {
                    self.health.driver_reloaded();
                    tracing::info!("{change}");
                }
                Change::Updated { .. } => {}
                _ => tracing::info!("{change}"),
            }
        }
        // Ailments that no event tells of: rows of memory that wait for a reset.
        for gpu in &inventory.gpus {
            let finding = examine(inventory, gpu);
            if let Finding::Broken(_) | Finding::WantsReset(_) = finding {
                health.extend(self.health.looked(now, &gpu.uuid, &finding));
            }
        }
        self.health_changed(health);
        let updated = |change: &Change| matches!(change, Change::Updated { .. });
        if !changes.iter().all(updated) {
            let inventory = with_the_lost(self.node.inventory(), inventory);
            self.renew(inventory).await;
        }
    }

    /// Offers what this inventory holds; where that is not possible, only what it still has of what was offered, and the node is
    /// read again later.
    async fn renew(&mut self, inventory: Inventory) {
        let config = self.config.clone();
        let machine = self.node.machine().with(inventory.clone());
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

    /// Looks whether something else than the GPUs is different, and puts the node in force anew if it is. Whether it was.
    async fn go_round(&mut self) -> bool {
        self.round = Instant::now() + ROUND;
        let Some(mut claims) = self.node.claims().take_if(|claims| !claims.are_untouched()) else {
            return false;
        };
        let (claims, hold) = off_the_runtime(move || {
            let hold = claims.still_hold();
            (claims, hold)
        })
        .await;
        *self.node.claims() = Some(claims);
        if !hold {
            tracing::info!("the GPUs have other owners");
            self.renew(self.node.inventory().clone()).await;
        }
        !hold
    }

    /// Begins to look at the GPUs that are not healthy, or may not be; others are followed meanwhile, since one may hang.
    fn look(&mut self) {
        // Nothing is known of health where there is none, and so nothing is looked at.
        if let Some(library) = self.node.machine().library.clone() {
            let root = self.config.host_root.clone();
            self.looking = Some(task::spawn_blocking(move || library.inventory(&root)));
        }
    }

    /// Takes into account what was seen of them.
    fn looked(&mut self, reading: &gpu_core::Result<Inventory>) {
        let now = self.now();
        let mut changes = Vec::new();
        for gpu in self.health.patients() {
            let finding = match (reading, self.node.inventory().gpu(&gpu)) {
                (Ok(inventory), Some(gpu)) => examine(inventory, gpu),
                (Ok(_), None) => Finding::Away("the driver does not list it".to_owned()),
                (Err(error), _) => Finding::Away(chain(error)),
            };
            changes.extend(self.health.looked(now, &gpu, &finding));
        }
        self.health_changed(changes);
    }

    /// Reads the node anew, and forgets what happened to its GPUs once it is read. The driver stays open and the watch goes on where
    /// nothing is amiss; else both begin anew. An error where that takes another process.
    async fn reload(&mut self) -> Result<()> {
        let sound = self.complaint.take().is_none() && self.health.patients().is_empty();
        let (machine, config) = (self.node.machine().clone(), self.config.clone());
        let Some(library) = machine.library.clone().filter(|_| sound) else {
            return self.discover_and(HealthStates::forget).await;
        };
        let read = off_the_runtime(move || {
            let inventory = library.inventory(&config.host_root)?;
            Node::of(machine.with(inventory), &config)
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
    async fn discover(&mut self) -> Result<()> {
        self.discover_and(|_| ()).await
    }

    /// The same, and does this with what is known of health once the node is read.
    async fn discover_and(&mut self, once_read: impl FnOnce(&mut HealthStates)) -> Result<()> {
        self.retry = None;
        let config = self.config.clone();
        match off_the_runtime(move || Node::discover(&config)).await {
            Ok(node) => {
                once_read(&mut self.health);
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
    async fn reconfigure(&mut self, config: NodeConfig) -> Result<(), String> {
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
                    Node::discover(&config)
                }
            }
        });
        let node = renewed.await.map_err(|error| chain(&error))?;
        tracing::info!("the new configuration is in force");
        self.health.set_policy(config.health.clone());
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

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

fn watch_node(
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
    Watcher::start(library, node.inventory().clone(), watching, deliver).map(Some)
}

/// The later reading, with the GPUs that it could not read as they were: pods that have them go on, and so the kubelet goes on
/// knowing them. One that is gone without a problem was taken out.
fn with_the_lost(before: &Inventory, later: &Inventory) -> Inventory {
    let mut now = later.clone();
    let lost = before.diff(later).into_iter().filter_map(|change| match change {
        Change::Lost { gpu, .. } => before.gpu(&gpu),
        _ => None,
    });
    now.gpus.extend(lost.cloned());
    now.gpus.sort_by_key(|gpu| gpu.pci.address);
    now
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// A panic there is a panic here.
async fn off_the_runtime<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    finished(&mut Some(task::spawn_blocking(work))).await
}

/// What the task has done, once it has; it is none then. Never where there is none.
async fn finished<T>(task: &mut Option<JoinHandle<T>>) -> T {
    let Some(running) = task else {
        return std::future::pending().await;
    };
    match running.await {
        Ok(done) => {
            *task = None;
            done
        }
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
