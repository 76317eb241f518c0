//! Making those wait who use GPUs, and letting them go on.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, bail};
use gpu_sharing::mig::manager::{Lease, NodeMeta, names};
use k8s_openapi::api::core::v1::Pod;
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    MigManager,
    attempt::Attempt,
    blocking,
    services::{self, Host},
    users::{PodName, identity, waits},
};

/// How often an eviction that was not allowed is asked for again.
const EVICT_AGAIN: Duration = Duration::from_secs(2);
/// How often it is looked whether processes have ended: nobody tells.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// For so many times as long as pods were waited for in vain, nobody has to wait for the same pods again.
const REST: u32 = 10;

/// Pods that were waited for in vain.
#[derive(Debug)]
pub(super) struct Standing {
    uids: BTreeSet<String>,
    reason: String,
    until: Instant,
}

impl Standing {
    /// Whether it would be the same again.
    fn stands(&self, pods: &[Pod]) -> bool {
        let uids = pods.iter().filter_map(|pod| pod.metadata.uid.as_ref());
        Instant::now() < self.until && uids.into_iter().any(|uid| self.uids.contains(uid))
    }
}

impl Attempt<'_> {
    /// Makes all who use GPUs wait, and waits until they are gone.
    pub(super) async fn pause(
        &mut self,
        node: &NodeMeta,
        lease: &Lease,
        evicted: &BTreeSet<PodName>,
        deadline: Instant,
    ) -> anyhow::Result<()> {
        let (pods, _) = self.cluster.pods().await?;
        if let Some(standing) = self.standing.take_if(|standing| !standing.stands(&pods)) {
            tracing::info!("waiting once more, which was in vain: {}", standing.reason);
        }
        if let Some(standing) = &*self.standing {
            bail!("{}", standing.reason);
        }
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
            // Whoever asks for another value is heeded by what is read here.
            self.cluster.node().await?;
            let (mut left, version) = self.cluster.pods().await?;
            left.retain(|pod| waits(pod, lease) || evicted.contains(&identity(pod)));
            if left.is_empty() {
                return Ok(());
            }
            // Nobody tells when a disruption budget allows an eviction.
            let look = if asked.len() < evicted.len() {
                Instant::now() + EVICT_AGAIN
            } else {
                deadline
            };
            let waited = timeout_at(look.min(deadline), self.cluster.pod_changes(&version)).await;
            if waited.is_err() && Instant::now() >= deadline {
                bail!("{}", self.in_vain(&left));
            }
        }
    }

    /// Waits until processes have ended whose pods are gone: a pod that is deleted by force is gone before they are, and
    /// an attempt that finds them then takes them for processes of the host, and looks for other pods to evict.
    pub(super) async fn ended(&mut self, processes: &BTreeSet<u32>, deadline: Instant) -> anyhow::Result<()> {
        while !processes.is_empty() {
            let (_, usage) = self.read().await?;
            let left = usage.gpus.iter().flat_map(|gpu| &gpu.processes);
            let mut left = left.filter(|process| processes.contains(&process.pid));
            let Some(process) = left.next() else { break };
            if Instant::now() >= deadline {
                bail!(
                    "process {} is there after {} s, though its pod is gone",
                    process.pid,
                    self.manager.ours.pause_seconds
                );
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// Notes pods that did not go, and says so.
    fn in_vain(&mut self, left: &[Pod]) -> String {
        let names = left.iter().map(identity);
        let names: Vec<_> = names.map(|(namespace, name)| format!("{namespace}/{name}")).collect();
        let seconds = self.manager.ours.pause_seconds;
        let reason = format!("these pods are not gone after {seconds} s: {}", names.join(", "));
        *self.standing = Some(Standing {
            uids: left.iter().filter_map(|pod| pod.metadata.uid.clone()).collect(),
            reason: reason.clone(),
            until: Instant::now() + self.manager.pause_limit() * REST,
        });
        reason
    }

    /// Stops the host's services, and the kubelet where MIG mode changes: it holds what devices it has been told of.
    pub(super) async fn stop_services(&self, modes: bool) -> anyhow::Result<()> {
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
}

/// Starts the host's services that were stopped under a lease, the last one first. Those that did not start, and why.
pub(super) async fn start_services(manager: &MigManager, node: &NodeMeta) -> (Vec<String>, Option<String>) {
    let services = Lease::of(node).map(|lease| lease.services).unwrap_or_default();
    let (mut unstarted, mut reasons) = (Vec::new(), Vec::new());
    for service in services.into_iter().rev() {
        let (root, name) = (manager.host_root_mount.clone(), service.clone());
        if let Err(error) = blocking(move || Host { root: &root }.start(&name)).await {
            tracing::warn!("{error:#}");
            reasons.push(crate::program::chain(&error));
            unstarted.insert(0, service);
        }
    }
    let reason = (!reasons.is_empty()).then(|| reasons.join("; "));
    (unstarted, reason)
}
