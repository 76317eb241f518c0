//! Who uses instances that have to go.

use std::collections::{BTreeMap, BTreeSet};

use gpu_core::{GpuUuid, Inventory, Usage};
use gpu_sharing::mig::{
    NodePlan,
    manager::{Lease, names},
};
use k8s_openapi::api::core::v1::Pod;

/// Pods and processes of the host that use instances which a plan destroys, or GPUs whose mode it changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Users {
    /// Namespace and name.
    pub(super) pods: BTreeSet<(String, String)>,
    /// Of no pod of this node.
    pub(super) processes: BTreeSet<String>,
}

impl Users {
    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.processes.is_empty()
    }

    pub(super) fn names(&self) -> String {
        let pods = self
            .pods
            .iter()
            .map(|(namespace, name)| format!("pod {namespace}/{name}"));
        pods.chain(self.processes.iter().cloned())
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Of a plan that was made as if nothing were in use. Pods that wait by their label are left out: they will go.
    pub(super) fn of(plan: &NodePlan, inventory: &Inventory, usage: &Usage, pods: &[Pod], lease: &Lease) -> Self {
        let mut users = Self::default();
        let by_uid: BTreeMap<_, _> = pods
            .iter()
            .filter_map(|pod| Some((pod.metadata.uid.as_deref()?, pod)))
            .collect();
        for change in &plan.plan.changes {
            let Some(gpu) = inventory.gpus.iter().find(|gpu| gpu.uuid.as_str() == change.gpu) else {
                continue;
            };
            let gone = |gi: Option<u32>, ci: Option<u32>| {
                let instances = gpu.mig.iter().flat_map(|mig| &mig.gpu_instances);
                let mut of = instances.filter(|live| gi.is_none_or(|gi| gi == live.id));
                change.mode.is_some()
                    || of.any(|live| {
                        let at = |start: u8| u32::from(start) == live.placement.start;
                        let whole = change.destroyed.iter().any(|gone| at(gone.placement.start));
                        let parts = change
                            .compute
                            .iter()
                            .filter(|compute| at(compute.instance.placement.start));
                        let parts = parts.flat_map(|compute| &compute.destroyed).any(|part| {
                            let mut same = live
                                .compute_instances
                                .iter()
                                .filter(|live| live.placement.start == part.start);
                            same.any(|live| ci.is_none_or(|ci| ci == live.id))
                        });
                        whole || parts
                    })
            };
            for process in processes(usage, &gpu.uuid) {
                if !gone(process.gpu_instance, process.compute_instance) {
                    continue;
                }
                let uid = process
                    .container
                    .as_ref()
                    .and_then(|container| container.pod_uid.as_deref());
                match uid.and_then(|uid| by_uid.get(uid)) {
                    Some(pod) if waits(pod, lease) => {}
                    Some(pod) => drop(users.pods.insert(identity(pod))),
                    None => {
                        let command = process.command.as_deref().unwrap_or("?");
                        users.processes.insert(format!("process {} ({command})", process.pid));
                    }
                }
            }
        }
        users
    }
}

fn processes<'a>(usage: &'a Usage, gpu: &GpuUuid) -> impl Iterator<Item = &'a gpu_core::GpuProcess> {
    let gpu = gpu.clone();
    usage
        .gpus
        .iter()
        .filter(move |used| used.gpu == gpu)
        .flat_map(|used| &used.processes)
}

pub(super) fn identity(pod: &Pod) -> (String, String) {
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
