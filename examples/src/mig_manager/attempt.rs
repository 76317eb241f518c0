//! One attempt to make the GPUs of this node what a value of the label says.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use anyhow::{Context as _, bail};
use gpu_core::{Inventory, Usage};
use gpu_sharing::mig::{
    manager::{Lease, NodeMeta, Outcome, State, names},
    parted::Selection,
};
use tokio::time::{Instant, timeout};

use super::{
    MigManager, blocking, cdi,
    claim::{self, Claim},
    cluster::{Cluster, SUPERSEDED},
    config::{self, Source},
    now,
    pause::{Standing, start_services},
    services::{self, Host},
    users::{Way, waited_for},
};
use crate::{
    mig_apply::{Extent, Node, Report},
    program::chain,
};

/// What an attempt came to.
#[derive(Debug)]
pub(super) enum End {
    /// The GPUs are what the value says.
    Applied,
    /// They are not, and the node says why.
    Failed,
    /// The node asks for another value by now; who waits goes on waiting for that.
    Superseded,
    /// The host reboots.
    Rebooting,
}

/// A value that is to be applied, and all that it takes.
pub(super) struct Attempt<'a> {
    pub(super) manager: &'a MigManager,
    pub(super) cluster: &'a Cluster,
    /// Kept for the next attempt; `None` while a change goes on that was given up.
    pub(super) gpus: &'a mut Option<Node>,
    pub(super) value: &'a str,
    /// The same; pods for which nobody has to wait again so soon.
    pub(super) standing: &'a mut Option<Standing>,
    /// Whether GPUs are being changed: then nobody may end the process lightly.
    pub(super) changing: Arc<AtomicBool>,
}

enum Applied {
    Yes,
    Rebooting,
}

/// Says when it is dropped that GPUs are no longer being changed.
struct Clear(Arc<AtomicBool>);

impl Drop for Clear {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

impl Attempt<'_> {
    /// Applies the value, and reports what came of it. Whoever was made to wait goes on afterwards, whatever happened.
    ///
    /// # Errors
    /// If the API server cannot be told.
    pub(super) async fn run(mut self) -> anyhow::Result<End> {
        let done = self.apply().await;
        self.finish(done).await
    }

    async fn finish(&self, done: anyhow::Result<Applied>) -> anyhow::Result<End> {
        if let Ok(Applied::Rebooting) = done {
            return Ok(End::Rebooting);
        }
        let node = self.cluster.node().await?;
        let (unstarted, service) = start_services(self.manager, &node).await;
        let reason = done.err().map(|error| chain(&error)).or(service);
        if !self.changing.load(SeqCst) {
            claim::release(self.manager).await;
        }
        if node.config() != Some(self.value) {
            return Ok(End::Superseded);
        }
        let outcome = Outcome {
            state: if reason.is_some() {
                State::Failed
            } else {
                State::Success
            },
            value: self.value,
            reason: reason.as_deref(),
        };
        if !outcome.is_reported(&node) {
            if let Some(reason) = &reason {
                tracing::warn!("`{}` is not applied: {reason}", self.value);
            } else {
                tracing::info!("`{}` is applied", self.value);
            }
        }
        self.cluster.write(&outcome.end(&node, &unstarted)).await?;
        if Lease::of(&node).is_some_and(|lease| !lease.paused.is_empty()) {
            let namespace = &self.manager.default_gpu_clients_namespace;
            if let Err(error) = self.cluster.delete_pods(namespace, &[names::VALIDATOR]).await {
                tracing::warn!("{error:#}");
            }
        }
        Ok(if reason.is_some() { End::Failed } else { End::Applied })
    }

    async fn apply(&mut self) -> anyhow::Result<Applied> {
        if self.changing.load(SeqCst) {
            bail!("the driver has not come to an end with an earlier change");
        }
        let node = self.cluster.node().await?;
        if node.config() != Some(self.value) {
            bail!(SUPERSEDED);
        }
        let (inventory, usage) = self.read().await?;
        let source = self.source(&inventory).await?;
        let selection = select(&source, self.value, &inventory)?;
        for note in &selection.notes {
            tracing::info!("`{}`: {note}", self.value);
        }
        if !selection.differs(&inventory).is_empty() {
            let disturbs = self.prepare(&node, &selection, inventory, usage).await?;
            let report = self.change(source, disturbs).await?;
            report.steps.iter().for_each(|step| tracing::info!("{step}"));
            if !report.pending.is_empty() {
                return self.reboot(&node).await;
            }
        }
        self.tell().await?;
        Ok(Applied::Yes)
    }

    /// Sees to it that nothing is in the way of the change; whether somebody has to wait for it.
    async fn prepare(
        &mut self,
        node: &NodeMeta,
        selection: &Selection,
        inventory: Inventory,
        usage: Usage,
    ) -> anyhow::Result<bool> {
        let differences = selection.differs(&inventory);
        let gpus = inventory.gpus.iter();
        let gpus = gpus.filter(|gpu| differences.iter().any(|difference| difference.index == gpu.index));
        let gpus = gpus.map(|gpu| gpu.uuid.clone()).collect();
        let lease = Lease::take(node, self.manager.owner(), self.manager.deadline(now()));
        let (pods, _) = self.cluster.pods().await?;
        let way = {
            let (selection, lease) = (selection.clone(), lease.clone());
            blocking(move || {
                let way = Way::to(&selection, &inventory, &usage, &pods, &lease)?;
                Ok((way, usage, pods))
            })
        };
        // A plan may take its time.
        let (way, usage, pods) = self.cluster.while_asked(self.value, way).await?;
        let evicted = match way {
            Way::Without(users, refused) if !users.processes.is_empty() || !self.manager.ours.evict_pods => {
                let (value, names) = (self.value, users.names());
                let message = format!("`{value}` takes instances that are in use by {names}: {refused}");
                self.cluster.event(now(), "MigInstancesInUse", &message).await;
                bail!("{message}");
            }
            Way::Adds => {
                Claim::take(self.manager, gpus).await?;
                return Ok(false);
            }
            Way::Waits => BTreeSet::new(),
            Way::Without(users, _) => users.pods,
        };
        // Asked before anybody is made to wait.
        let claim = Claim::take(self.manager, gpus).await?;
        let processes = waited_for(&usage, &pods, &lease, &evicted);
        let (cluster, value) = (self.cluster, self.value);
        let deadline = Instant::now() + self.manager.pause_limit();
        let gone = async {
            self.pause(node, &lease, &evicted, deadline).await?;
            self.ended(&processes, deadline).await
        };
        cluster.while_asked(value, gone).await?;
        if self.manager.with_shutdown_host_gpu_clients {
            let modes = differences.iter().any(|difference| difference.mode);
            self.stop_services(modes).await?;
        }
        claim.take_over().await?;
        Ok(true)
    }

    /// What belongs to GPUs that are what the value says: the CDI file, and the word to the host's own manager.
    async fn tell(&self) -> anyhow::Result<()> {
        if self.manager.cdi_enabled {
            let manager = self.manager.clone();
            blocking(move || cdi::write(&manager)).await?;
        }
        let file = self.manager.on_host(&self.manager.host_mig_manager_state_file);
        if services::tell_host_manager(&file, self.value)? {
            // Also where it said so before: it may not have come to this.
            let root = self.manager.host_root_mount.clone();
            blocking(move || Host { root: &root }.reload()).await?;
        }
        Ok(())
    }

    /// The GPUs, and who uses them.
    pub(super) async fn read(&mut self) -> anyhow::Result<(Inventory, Usage)> {
        let gpus = self.gpus.take();
        let mut gpus = gpus.unwrap_or_else(|| Node::new(self.manager.hardware()));
        let read = blocking(move || {
            let read = gpus.inventory().and_then(|inventory| Ok((inventory, gpus.usage()?)));
            // The driver may be another one when it is looked at next.
            if read
                .as_ref()
                .map_or(true, |(inventory, _)| !inventory.problems.is_empty())
            {
                gpus.close();
            }
            Ok((gpus, read))
        });
        let (gpus, read) = read.await?;
        *self.gpus = Some(gpus);
        read
    }

    /// The file of configurations, kept where people look for it if it was made here.
    async fn source(&self, inventory: &Inventory) -> anyhow::Result<Source> {
        if let Some(given) = config::given(self.manager) {
            return given;
        }
        let source = config::made(self.manager, inventory)?;
        if source.generated {
            if let Err(error) = config::keep(&self.manager.generated_config_file, &source.text) {
                tracing::warn!("{error:#}");
            }
            if let Some(namespace) = &self.manager.pod_namespace {
                let kept = self
                    .cluster
                    .keep(namespace, self.manager.pod_name.as_deref(), &source.text)
                    .await;
                kept.unwrap_or_else(|error| tracing::warn!("{error:#}"));
            }
        }
        Ok(source)
    }

    async fn change(&mut self, source: Source, disturbs: bool) -> anyhow::Result<Report> {
        let mut gpus = self.gpus.take().context("the GPUs were not read")?;
        let (value, reboots) = (self.value.to_owned(), self.manager.with_reboot);
        tracing::info!(
            "step apply: `{value}`{}",
            if disturbs { "" } else { ", which only adds instances" }
        );
        let changing = Arc::clone(&self.changing);
        changing.store(true, SeqCst);
        let changed = blocking(move || {
            // Cleared by this thread, which goes on where the attempt is given up.
            let _changing = Clear(changing);
            let select = |inventory: &Inventory| select(&source, &value, inventory);
            let changed = change(&mut gpus, &select, reboots);
            Ok((gpus, changed))
        });
        let limit = self.manager.change_limit();
        let changed = timeout(limit, changed).await;
        tracing::info!("step resume: who waited goes on");
        let Ok(changed) = changed else {
            bail!("the driver has not made the change within {} s", limit.as_secs());
        };
        let (gpus, changed) = changed?;
        *self.gpus = Some(gpus);
        changed
    }

    async fn reboot(&self, node: &NodeMeta) -> anyhow::Result<Applied> {
        let outcome = Outcome {
            state: State::Rebooting,
            value: self.value,
            reason: None,
        };
        if node.rebooted_for() == Some(self.value) {
            bail!("MIG mode did not change with the reboot");
        }
        self.cluster.write(&outcome.report()).await?;
        tracing::info!("step reboot: MIG mode changes with it");
        claim::release(self.manager).await;
        let root = self.manager.host_root_mount.clone();
        blocking(move || Host { root: &root }.reboot()).await?;
        Ok(Applied::Rebooting)
    }
}

fn select(source: &Source, value: &str, inventory: &Inventory) -> anyhow::Result<Selection> {
    let configs = source.configs()?;
    let config = configs
        .named(Some(value))
        .with_context(|| format!("cannot use {}", source.name))?;
    config
        .select(inventory)
        .with_context(|| format!("cannot use {}", source.name))
}

fn modes_differ(gpus: &mut Node, select: &dyn Fn(&Inventory) -> anyhow::Result<Selection>) -> anyhow::Result<bool> {
    let inventory = gpus.inventory()?;
    Ok(!select(&inventory)?.mode_differs(&inventory).is_empty())
}

/// Modes first where they may take a reboot, then the rest.
fn change(
    gpus: &mut Node,
    select: &dyn Fn(&Inventory) -> anyhow::Result<Selection>,
    reboots: bool,
) -> anyhow::Result<Report> {
    let mut steps = Vec::new();
    if reboots && modes_differ(gpus, select)? {
        let extent = Extent {
            mode_only: true,
            skip_reset: true,
        };
        let report = gpus.change_now(select, extent)?;
        if !report.pending.is_empty() {
            return Ok(report);
        }
        steps = report.steps;
    }
    let mut report = gpus.change_now(select, Extent::default())?;
    report.steps.splice(0..0, steps);
    Ok(report)
}
