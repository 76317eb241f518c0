//! Attempt after attempt, for as long as the node is there.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::{Context as _, anyhow};
use gpu_sharing::mig::manager::{BackOff, Lease, NodeMeta};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    MigManager,
    attempt::{Attempt, End},
    claim,
    cluster::Cluster,
    config, now,
    pause::{Standing, start_services},
};
use crate::mig_apply::Node;

/// How often a file of configurations that is given is looked at: a mounted `ConfigMap` changes behind one's back.
const LOOK: Duration = Duration::from_secs(1);
/// What is left of the two seconds in which a daemon ends.
const LAST_WORDS: Duration = Duration::from_millis(1500);

pub(super) async fn run(manager: MigManager) -> anyhow::Result<()> {
    let mut end = Stop::new()?;
    let _alone = tokio::select! {
        lock = alone(&manager) => lock,
        () = end.wait() => return Ok(()),
    };
    let cluster = Cluster::new(manager.kubeconfig.as_deref(), &manager.node_name).await?;
    let first = tokio::select! {
        node = first(&cluster) => node,
        () = end.wait() => return Ok(()),
    };
    let mut daemon = Daemon {
        node: cluster.follow(),
        manager,
        cluster,
        gpus: None,
        standing: None,
        changing: Arc::default(),
        tried: None,
        back_off: BackOff::new(),
        due: None,
    };
    let mut stopped = tokio::select! {
        () = daemon.take_over(&first) => false,
        () = end.wait() => true,
    };
    loop {
        stopped = stopped
            || tokio::select! {
                () = daemon.step() => false,
                () = end.wait() => true,
            };
        let stopped = stopped
            || tokio::select! {
                () = daemon.news() => false,
                () = end.wait() => true,
            };
        if stopped {
            daemon.leave().await;
            return Ok(());
        }
    }
}

/// The lock by which one manager of a node waits for another: an update of the `DaemonSet` may overlap, and two would take
/// each other's leases. It ends with the process.
async fn alone(manager: &MigManager) -> Option<fs::File> {
    let path = manager.host_root_mount.join("run/gpu-mig-manager.lock");
    let file = match fs::File::create(&path) {
        Ok(file) => file,
        Err(error) => {
            tracing::warn!(
                "cannot see to it that no other manager works here: cannot open `{}`: {error}",
                path.display()
            );
            return None;
        }
    };
    let mut told = false;
    while let Err(error) = file.try_lock() {
        if !matches!(error, fs::TryLockError::WouldBlock) {
            tracing::warn!("cannot lock `{}`: {error}", path.display());
            return None;
        }
        if !told {
            tracing::info!("waiting for another manager of this node to end (`{}`)", path.display());
            told = true;
        }
        sleep(LOOK).await;
    }
    Some(file)
}

/// The node, once the API server answers.
async fn first(cluster: &Cluster) -> NodeMeta {
    let mut pauses = BackOff::new();
    loop {
        match cluster.node().await {
            Ok(node) => return node,
            Err(error) => tracing::warn!("{error:#}"),
        }
        sleep(pauses.pause()).await;
    }
}

struct Daemon {
    manager: MigManager,
    cluster: Cluster,
    node: watch::Receiver<NodeMeta>,
    gpus: Option<Node>,
    standing: Option<Standing>,
    changing: Arc<AtomicBool>,
    /// The value and the file that the last attempt was for.
    tried: Option<(String, Option<String>)>,
    back_off: BackOff,
    /// When to try again.
    due: Option<Instant>,
}

impl Daemon {
    /// Ends the lease of another manager, which is gone, and one that has lasted longer than it was to: before anything else.
    async fn take_over(&self, node: &NodeMeta) {
        let lease = Lease::of(node).filter(|lease| lease.is_over(&self.manager.owner(), now()));
        if let Some(lease) = lease {
            tracing::info!("ending the wait that `{}` has asked for", lease.owner);
            if let Err(error) = self.resume(node).await {
                tracing::warn!("{error:#}");
            }
        }
    }

    /// Makes an attempt, if the value or the file is new, or one that failed is due.
    async fn step(&mut self) {
        let node = self.node.borrow_and_update().clone();
        let Some(value) = node.config() else {
            if self.tried.take().is_some() {
                self.due = None;
                self.back_off = BackOff::new();
            }
            if self.due.is_some_and(|due| due > Instant::now()) {
                return;
            }
            // Nobody asks for anything: then nobody has to wait.
            self.due = match self.resume(&node).await {
                Ok(()) => None,
                Err(error) => {
                    tracing::warn!("{error:#}");
                    Some(Instant::now() + self.back_off.pause())
                }
            };
            return;
        };
        let asked = (value.to_owned(), self.file());
        let is_new = self.tried.as_ref() != Some(&asked);
        if !is_new && self.due.is_none_or(|due| due > Instant::now()) {
            return;
        }
        if is_new {
            self.back_off = BackOff::new();
            self.standing = None;
        }
        self.tried = Some(asked);
        let attempt = Attempt {
            manager: &self.manager,
            cluster: &self.cluster,
            gpus: &mut self.gpus,
            standing: &mut self.standing,
            value,
            changing: Arc::clone(&self.changing),
        };
        self.due = match attempt.run().await {
            Ok(End::Applied) => None,
            // If it does not come, who waits for it goes on.
            Ok(End::Rebooting) => Some(Instant::now() + self.manager.change_limit()),
            Ok(End::Superseded) => {
                self.tried = None;
                Some(Instant::now())
            }
            Ok(End::Failed) => Some(Instant::now() + self.back_off.pause()),
            Err(error) => {
                tracing::warn!("{error:#}");
                Some(Instant::now() + self.back_off.pause())
            }
        };
    }

    /// The text of the file that is given.
    fn file(&self) -> Option<String> {
        match config::given(&self.manager)? {
            Ok(source) => Some(source.text),
            Err(error) => Some(format!("{error:#}")),
        }
    }

    /// Waits until something is worth another look.
    async fn news(&mut self) {
        let given = config::given(&self.manager).is_some();
        let due = self.due.unwrap_or_else(|| Instant::now() + Duration::from_hours(1));
        tokio::select! {
            changed = self.node.changed() => if changed.is_err() { sleep(LOOK).await },
            () = sleep(LOOK), if given => {}
            () = sleep_until(due) => {}
        }
    }

    /// Gives up the GPUs and ends every wait: services of the host first, since the lease that names them goes with the rest.
    ///
    /// # Errors
    /// If a service does not start, which stays noted, or the API server cannot be told.
    async fn resume(&self, node: &NodeMeta) -> anyhow::Result<()> {
        if !self.changing.load(SeqCst) {
            claim::release(&self.manager).await;
        }
        let (unstarted, reason) = start_services(&self.manager, node).await;
        self.cluster.write(&node.resumed(&unstarted)).await?;
        reason.map_or(Ok(()), |reason| Err(anyhow!(reason)))
    }

    /// Lets everybody go on, if GPUs are not being changed this moment: then the next start does.
    async fn leave(&self) {
        let last = async {
            while self.changing.load(SeqCst) {
                sleep(Duration::from_millis(20)).await;
            }
            self.resume(&self.cluster.node().await?).await
        };
        match timeout(LAST_WORDS, last).await {
            Ok(Ok(())) => tracing::info!("ending; nobody waits"),
            Ok(Err(error)) => tracing::warn!("ending; the next start lets go on who waits: {error:#}"),
            Err(_) => tracing::warn!("ending while GPUs are being changed: the next start repairs it"),
        }
    }
}

struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
