//! One attempt to make the GPUs of this node what a value of the label says.

use std::{
    collections::BTreeSet,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, anyhow, bail};
use gpu_core::{
    GpuUuid, Inventory, Usage,
    ownership::{Owner, OwnerFile},
};
use gpu_sharing::mig::{
    NodePlan,
    manager::{Lease, NodeMeta, Outcome, State, names},
    parted::Selection,
    plan_node,
};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    MigManager, cdi,
    cluster::Cluster,
    config::{self, Source},
    services::{self, Host},
    users::{Users, identity, waits},
};
use crate::mig_apply::{self, Before, Extent, Node, Report};

/// How often an eviction that was not allowed is asked for again.
const EVICT_AGAIN: Duration = Duration::from_secs(2);

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
    /// Whether GPUs are being changed: then nobody may end the process lightly.
    pub(super) changing: Arc<AtomicBool>,
}

enum Applied {
    Yes,
    Rebooting,
}

/// Whatever uses GPUs has gone by then.
struct Gone;

/// Says when it is dropped that GPUs are no longer being changed.
struct Clear(Arc<AtomicBool>);

impl Drop for Clear {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

impl Before for Gone {}

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
        let mut reason = done.err().map(|error| crate::program::chain(&error));
        for error in start_services(self.manager, &node).await {
            tracing::warn!("{error:#}");
            reason.get_or_insert(format!("{error:#}"));
        }
        if !self.changing.load(SeqCst) {
            self.release();
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
        let disturbed = Lease::of(&node).is_some();
        if !outcome.is_reported(&node) {
            if let Some(reason) = &reason {
                tracing::warn!("`{}` is not applied: {reason}", self.value);
            } else {
                tracing::info!("`{}` is applied", self.value);
            }
        }
        self.cluster.write(&outcome.end(&node)).await?;
        if disturbed {
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
        let (inventory, usage) = self.read().await?;
        let source = self.source(&inventory).await?;
        let selection = select(&source, self.value, &inventory)?;
        for note in &selection.notes {
            tracing::info!("`{}`: {note}", self.value);
        }
        if selection.differs(&inventory).is_empty() {
            return Ok(Applied::Yes);
        }
        // What cannot be whoever goes is refused here, before anybody is disturbed.
        let ideal = mig_apply::plan(&inventory, &Usage::default(), &selection)?;
        let real = plan_node(&inventory, &usage, &selection.wanted);
        let disturbs = real.as_ref().map_or(true, disturbs);
        let lease = Lease::take(&node, self.owner(), self.manager.deadline(now()));
        let mut evicted = BTreeSet::new();
        if let Err(refused) = &real {
            let (pods, _) = self.cluster.pods().await?;
            let users = Users::of(&ideal, &inventory, &usage, &pods, &lease);
            if !(users.is_empty() || self.manager.ours.evict_pods && users.processes.is_empty()) {
                let refused: Vec<_> = refused
                    .iter()
                    .map(|refused| mig_apply::indexed(&refused.to_string(), &inventory))
                    .collect();
                let message = format!(
                    "`{}` takes instances that are in use by {}: {}",
                    self.value,
                    users.names(),
                    refused.join("; ")
                );
                self.cluster.event(now(), "MigInstancesInUse", &message).await;
                bail!("{message}");
            }
            evicted = users.pods;
        }
        if disturbs {
            self.pause(&node, lease, &evicted).await?;
            if self.manager.with_shutdown_host_gpu_clients {
                let modes = ideal.plan.changes.iter().any(|change| change.mode.is_some());
                self.stop_services(modes).await?;
            }
        }
        self.claim(&ideal, &inventory, disturbs)?;
        let report = self.change(source, disturbs).await?;
        report.steps.iter().for_each(|step| tracing::info!("{step}"));
        if !report.pending.is_empty() {
            return self.reboot(&node).await;
        }
        if self.manager.cdi_enabled {
            let manager = self.manager.clone();
            blocking(move || cdi::write(&manager)).await?;
        }
        self.tell_host().await?;
        Ok(Applied::Yes)
    }

    fn owner(&self) -> String {
        self.manager
            .pod_name
            .clone()
            .unwrap_or_else(|| self.manager.node_name.clone())
    }

    /// The GPUs, and who uses them.
    async fn read(&mut self) -> anyhow::Result<(Inventory, Usage)> {
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

    /// Makes all who use GPUs wait, and waits until they are gone.
    async fn pause(&self, node: &NodeMeta, lease: Lease, evicted: &BTreeSet<(String, String)>) -> anyhow::Result<()> {
        let deadline = Instant::now() + self.manager.pause_limit();
        tracing::info!("step pause: `{}` changes instances; who uses GPUs waits", self.value);
        self.cluster.write(&lease.pause(node, self.value)).await?;
        self.cluster
            .delete_pods(&self.manager.default_gpu_clients_namespace, &names::CHECKS)
            .await?;
        let mut asked = BTreeSet::new();
        tracing::info!("step wait: until they are gone");
        loop {
            for pod in evicted.difference(&asked.clone()) {
                if self.cluster.evict(&pod.0, &pod.1).await? {
                    tracing::info!("evicted pod {}/{}", pod.0, pod.1);
                    asked.insert(pod.clone());
                }
            }
            if self.cluster.node().await?.config() != Some(self.value) {
                bail!("another value is asked for by now");
            }
            let (pods, version) = self.cluster.pods().await?;
            let left = pods
                .iter()
                .filter(|pod| waits(pod, &lease) || evicted.contains(&identity(pod)));
            let left: Vec<_> = left
                .map(identity)
                .map(|(namespace, name)| format!("{namespace}/{name}"))
                .collect();
            if left.is_empty() {
                break;
            }
            // Nobody tells when a disruption budget allows an eviction.
            let look = if asked.len() < evicted.len() {
                Instant::now() + EVICT_AGAIN
            } else {
                deadline
            };
            let waited = timeout_at(look.min(deadline), self.cluster.pod_changes(&version)).await;
            if waited.is_err() && Instant::now() >= deadline {
                bail!(
                    "these pods are not gone after {} s: {}",
                    self.manager.ours.pause_seconds,
                    left.join(", ")
                );
            }
        }
        Ok(())
    }

    /// Stops the host's services, and the kubelet where MIG mode changes: it holds what devices it has been told of.
    async fn stop_services(&self, modes: bool) -> anyhow::Result<()> {
        let mut lease = Lease::of(&self.cluster.node().await?).context("the lease is gone")?;
        let mut named = services::named(self.manager.gpu_clients_file.as_deref())?;
        named.extend(modes.then(|| self.manager.host_kubelet_systemd_service.clone()));
        let root = self.manager.host_root_mount.clone();
        let active = blocking({
            let root = root.clone();
            move || Host { root: &root }.active(&named)
        });
        for service in active.await? {
            // Noted first: whoever finds the lease starts it again.
            if !lease.services.contains(&service) {
                lease.services.push(service.clone());
                self.cluster.write(&lease.note()).await?;
            }
            let root = root.clone();
            blocking(move || Host { root: &root }.stop(&service)).await?;
        }
        Ok(())
    }

    /// The GPUs that change are ours while they do.
    fn claim(&self, plan: &NodePlan, inventory: &Inventory, disturbs: bool) -> anyhow::Result<()> {
        let changed = |gpu: &&gpu_core::Gpu| plan.plan.changes.iter().any(|change| change.gpu == gpu.uuid.as_str());
        let gpus: Vec<GpuUuid> = inventory
            .gpus
            .iter()
            .filter(changed)
            .map(|gpu| gpu.uuid.clone())
            .collect();
        let owners = self.owners();
        if disturbs {
            // The plugin is gone: it was made to wait.
            owners.release(Owner::DevicePlugin, &gpus)?;
        } else {
            let theirs = owners.read()?.owners;
            let offered = |gpu: &GpuUuid| theirs.get(gpu).is_some_and(|claim| claim.owner == Owner::DevicePlugin);
            if gpus.iter().any(offered) {
                let others = gpus.into_iter().filter(|gpu| !offered(gpu)).collect::<Vec<_>>();
                // What the plugin offers stays as it is: instances are only added.
                return owners
                    .claim(Owner::MigManager, &others)
                    .context("cannot claim the GPUs");
            }
        }
        owners.claim(Owner::MigManager, &gpus).context("cannot claim the GPUs")
    }

    fn owners(&self) -> OwnerFile {
        // `/var/run` is a link into the host's root, which leads elsewhere from here.
        let run = self.manager.host_root_mount.join("run");
        OwnerFile::new(run.join("nvidia-gpu-owners.json")).kubelet(self.manager.on_host("/var/lib/kubelet".as_ref()))
    }

    fn release(&self) {
        if let Err(error) = self.owners().release_all(Owner::MigManager) {
            tracing::warn!("cannot give up the GPUs: {error}");
        }
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
        self.release();
        let root = self.manager.host_root_mount.clone();
        blocking(move || Host { root: &root }.reboot()).await?;
        Ok(Applied::Rebooting)
    }

    async fn tell_host(&self) -> anyhow::Result<()> {
        let file = self.manager.on_host(&self.manager.host_mig_manager_state_file);
        if services::tell_host_manager(&file, self.value)? {
            let root = self.manager.host_root_mount.clone();
            blocking(move || Host { root: &root }.reload()).await?;
        }
        Ok(())
    }
}

/// Starts the host's services that were stopped under a lease, the last one first; what did not start.
pub(super) async fn start_services(manager: &MigManager, node: &NodeMeta) -> Vec<anyhow::Error> {
    let services = Lease::of(node).map(|lease| lease.services).unwrap_or_default();
    let mut failed = Vec::new();
    for service in services.into_iter().rev() {
        let root = manager.host_root_mount.clone();
        failed.extend(blocking(move || Host { root: &root }.start(&service)).await.err());
    }
    failed
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

fn disturbs(plan: &NodePlan) -> bool {
    plan.plan.changes.iter().any(|change| {
        change.mode.is_some()
            || !change.destroyed.is_empty()
            || change.compute.iter().any(|compute| !compute.destroyed.is_empty())
    })
}

/// Modes first where they may take a reboot, then the rest.
fn change(
    gpus: &mut Node,
    select: &dyn Fn(&Inventory) -> anyhow::Result<Selection>,
    reboots: bool,
) -> anyhow::Result<Report> {
    let mut steps = Vec::new();
    let inventory = gpus.inventory()?;
    if reboots && !select(&inventory)?.mode_differs(&inventory).is_empty() {
        let extent = Extent {
            mode_only: true,
            skip_reset: true,
        };
        let report = gpus.change(select, extent, &mut Gone)?;
        if !report.pending.is_empty() {
            return Ok(report);
        }
        steps = report.steps;
    }
    let mut report = gpus.change(select, Extent::default(), &mut Gone)?;
    report.steps.splice(0..0, steps);
    Ok(report)
}

pub(super) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Away from the thread that must not wait: a driver may hang, and so may systemd.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> anyhow::Result<T> + Send + 'static) -> anyhow::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)
        .map_err(|error| anyhow!(error))?
}
