//! Who uses what has to go, and who of them has to go for it.

use std::collections::{BTreeMap, BTreeSet};

use gpu_core::{GpuProcess, GpuUuid, Inventory, Usage};
use gpu_sharing::mig::{
    NodePlan, Wanted,
    manager::{Lease, names},
    parted::Selection,
    plan_node,
};
use k8s_openapi::api::core::v1::Pod;

use crate::mig_apply;

/// Namespace and name of a pod.
pub(super) type PodName = (String, String);

/// How GPUs can become what is wanted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Instances are only added: nobody is disturbed.
    Adds,
    /// Once those are gone who wait by their label.
    Waits,
    /// Once these are gone as well, and why it does not go with them.
    Without(Users, String),
}

/// Pods and processes of the host that hold what has to go.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Users {
    /// As few as can be on each GPU.
    pub(super) pods: BTreeSet<PodName>,
    /// Of no pod of this node, where evictions alone do not help.
    pub(super) processes: BTreeSet<String>,
}

impl Users {
    pub(super) fn names(&self) -> String {
        let pods = self
            .pods
            .iter()
            .map(|(namespace, name)| format!("pod {namespace}/{name}"));
        pods.chain(self.processes.iter().cloned())
            .collect::<Vec<_>>()
            .join(", ")
    }
}

impl Way {
    /// The way on which the fewest are disturbed.
    ///
    /// # Errors
    /// If there is none even if nothing were in use.
    pub(super) fn to(
        selection: &Selection,
        inventory: &Inventory,
        usage: &Usage,
        pods: &[Pod],
        lease: &Lease,
    ) -> anyhow::Result<Self> {
        mig_apply::plan(inventory, &Usage::default(), selection)?;
        if let Ok(plan) = plan_node(inventory, usage, &selection.wanted) {
            return Ok(if disturbs(&plan) { Self::Waits } else { Self::Adds });
        }
        let usage = without(usage, |process| {
            pod_of(process, pods).is_some_and(|pod| waits(pod, lease))
        });
        let Err(refused) = plan_node(inventory, &usage, &selection.wanted) else {
            return Ok(Self::Waits);
        };
        let mut users = Users::default();
        for refused in &refused {
            let Some(wanted) = selection.wanted.get(&refused.gpu) else {
                continue;
            };
            users.of(&refused.gpu, wanted, inventory, &usage, pods);
        }
        let reasons: Vec<_> = refused
            .iter()
            .map(|refused| mig_apply::indexed(&refused.to_string(), inventory))
            .collect();
        Ok(Self::Without(users, reasons.join("; ")))
    }
}

impl Users {
    /// Adds those who hold what has to go of a GPU: the fewest pods beside those that go already, or all that use it.
    ///
    /// Pods of one place go together, or none of them needs to: so it is places that are tried, and a GPU has few.
    fn of(&mut self, gpu: &GpuUuid, wanted: &Wanted, inventory: &Inventory, usage: &Usage, pods: &[Pod]) {
        const MOST: usize = 10;
        let usage = without(usage, |process| {
            pod_of(process, pods).is_some_and(|pod| self.pods.contains(&identity(pod)))
        });
        let mut places: BTreeMap<_, BTreeSet<PodName>> = BTreeMap::new();
        let mut hosts = BTreeSet::new();
        for process in processes(&usage, gpu) {
            let place = (process.gpu_instance, process.compute_instance);
            if let Some(pod) = pod_of(process, pods) {
                places.entry(place).or_default().insert(identity(pod));
            } else {
                let command = process.command.as_deref().unwrap_or("?");
                hosts.insert(format!("process {} ({command})", process.pid));
            }
        }
        let users: BTreeSet<_> = places.values().flatten().cloned().collect();
        let places: Vec<_> = places.into_values().collect();
        let mut choices: Vec<BTreeSet<_>> = if places.len() > MOST {
            vec![users.clone()]
        } else {
            let chosen = |mask: u32| {
                let chosen = places.iter().enumerate().filter(move |(at, _)| mask >> at & 1 == 1);
                chosen.flat_map(|(_, pods)| pods).cloned().collect()
            };
            (0..1 << places.len()).map(chosen).collect()
        };
        choices.sort_by_key(BTreeSet::len);
        let wanted = BTreeMap::from([(gpu.clone(), wanted.clone())]);
        let works = |gone: &BTreeSet<PodName>| {
            let usage = without(&usage, |process| {
                pod_of(process, pods).is_some_and(|pod| gone.contains(&identity(pod)))
            });
            plan_node(inventory, &usage, &wanted).is_ok()
        };
        if let Some(gone) = choices.into_iter().find(works) {
            self.pods.extend(gone);
            return;
        }
        self.pods.extend(users);
        self.processes.extend(hosts);
    }
}

/// The processes of all pods that are waited for: they may be there for a moment after their pods are gone.
pub(super) fn waited_for(usage: &Usage, pods: &[Pod], lease: &Lease, evicted: &BTreeSet<PodName>) -> BTreeSet<u32> {
    let goes = |pod: &Pod| waits(pod, lease) || evicted.contains(&identity(pod));
    let all = usage.gpus.iter().flat_map(|gpu| &gpu.processes);
    all.filter(|process| pod_of(process, pods).is_some_and(goes))
        .map(|process| process.pid)
        .collect()
}

fn disturbs(plan: &NodePlan) -> bool {
    plan.plan.changes.iter().any(|change| {
        change.mode.is_some()
            || !change.destroyed.is_empty()
            || change.compute.iter().any(|compute| !compute.destroyed.is_empty())
    })
}

fn without(usage: &Usage, goes: impl Fn(&GpuProcess) -> bool) -> Usage {
    let mut usage = usage.clone();
    for gpu in &mut usage.gpus {
        gpu.processes.retain(|process| !goes(process));
    }
    usage
}

fn processes<'a>(usage: &'a Usage, gpu: &GpuUuid) -> impl Iterator<Item = &'a GpuProcess> {
    let used = usage.gpus.iter().find(|used| used.gpu == *gpu);
    used.into_iter().flat_map(|used| &used.processes)
}

/// The pod of a process; `None` for one of the host, and where it cannot be seen.
fn pod_of<'a>(process: &GpuProcess, pods: &'a [Pod]) -> Option<&'a Pod> {
    let uid = process.container.as_ref()?.pod_uid.as_deref()?;
    pods.iter().find(|pod| pod.metadata.uid.as_deref() == Some(uid))
}

pub(super) fn identity(pod: &Pod) -> PodName {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&pod.metadata.namespace), text(&pod.metadata.name))
}

/// Whether a pod goes when the labels of a lease are paused.
pub(super) fn waits(pod: &Pod, lease: &Lease) -> bool {
    let selector = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref());
    let selected = selector.is_some_and(|selector| selector.keys().any(|key| lease.paused.contains_key(key)));
    let owned = pod
        .metadata
        .owner_references
        .iter()
        .flatten()
        .any(|owner| owner.kind == "DaemonSet");
    let app = pod.metadata.labels.as_ref().and_then(|labels| labels.get("app"));
    // The two lists are in one order.
    let known = names::WAITED_FOR
        .iter()
        .zip(names::PAUSED)
        .any(|(name, key)| app.is_some_and(|app| app == name) && lease.paused.contains_key(key));
    (selected || known) && owned
}
