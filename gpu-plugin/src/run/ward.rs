//! The GPUs that are looked after: what happens to them, and what they were seen to be.

use std::{sync::Arc, time::Duration};

use gpu_core::{
    Change, Inventory, Problem,
    nvml::{HealthEvent, Library},
};
use tokio::{
    task::{self, JoinHandle},
    time::Instant,
};

use super::wait::finished;
use crate::{
    Ailment, Finding, Health, HealthChange, HealthPolicy, HealthStates, NodeConfig, error::chain, examine,
    node::Machine, status::Ailments,
};

/// The health of a node's GPUs, with a clock and looks at them.
pub(super) struct Ward {
    states: HealthStates,
    /// What is told of it.
    ailments: Ailments,
    /// What its times count from.
    started: Instant,
    /// The look at GPUs that goes on.
    looking: Option<JoinHandle<gpu_core::Result<Inventory>>>,
}

impl Ward {
    pub(super) fn new(policy: HealthPolicy) -> Self {
        Self {
            states: HealthStates::new(policy),
            ailments: Ailments::default(),
            started: Instant::now(),
            looking: None,
        }
    }

    pub(super) fn states(&self) -> &HealthStates {
        &self.states
    }

    pub(super) fn set_policy(&mut self, policy: HealthPolicy) {
        self.states.set_policy(policy);
    }

    /// What ails the GPUs, in words.
    pub(super) fn ailments(&self) -> Vec<Ailment> {
        self.ailments.told(&self.states)
    }

    pub(super) fn event(&mut self, event: &HealthEvent) {
        let change = self.states.event(self.now(), event);
        if change.is_none() {
            tracing::info!(gpu = %event.gpu, "{:?}: the health of the GPU stays", event.kind);
        }
        self.note(change);
    }

    pub(super) fn not_watched(&mut self, problem: &Problem) {
        let change = self.states.not_watched(self.now(), problem);
        if change.is_none() {
            tracing::warn!("no health events: {problem}");
        }
        self.note(change);
    }

    /// The node has changed, as this reading shows.
    pub(super) fn node_changed(&mut self, changes: &[Change], inventory: &Inventory) {
        let now = self.now();
        let mut health = Vec::new();
        for change in changes {
            match change {
                Change::Lost { gpu, problem } => health.extend(self.states.lost(now, gpu, problem)),
                Change::Driver => self.states.driver_reloaded(),
                _ => {}
            }
        }
        // Ailments that no event tells of: rows of memory that wait for a reset.
        for gpu in &inventory.gpus {
            let finding = examine(inventory, gpu);
            if let Finding::Broken(_) | Finding::WantsReset(_) = finding {
                health.extend(self.states.looked(now, &gpu.uuid, &finding));
            }
        }
        self.note(health);
    }

    /// Keeps to the GPUs of this machine. Those that are offered although they could not be read are lost, if nothing is known of
    /// them yet.
    pub(super) fn keep_to(&mut self, machine: &Machine) {
        self.states.retain(|gpu| machine.inventory.gpu(gpu).is_some());
        let (now, patients) = (self.now(), self.states.patients());
        let unread = machine.unread().filter(|(gpu, _)| !patients.contains(&gpu.uuid));
        let changes: Vec<_> = unread
            .filter_map(|(gpu, problem)| self.states.lost(now, &gpu.uuid, problem))
            .collect();
        self.note(changes);
    }

    /// Forgets what happened to the GPUs of this machine that were read.
    pub(super) fn forget(&mut self, machine: &Machine) {
        self.states
            .forget(|gpu| machine.unread().all(|(unread, _)| unread.uuid != *gpu));
    }

    /// Whether nobody is to be looked at, sooner or later.
    pub(super) fn is_empty(&self) -> bool {
        self.states.patients().is_empty()
    }

    /// When to [look](Self::look) next; not while a look goes on.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let next = self.states.next_look().filter(|_| self.looking.is_none());
        next.map(|next| self.started + next)
    }

    /// Begins to look at the GPUs that are not healthy, or may not be; others are followed meanwhile, since one may hang.
    pub(super) fn look(&mut self, library: Arc<Library>, config: &NodeConfig) {
        let root = config.host_root.clone();
        self.looking = Some(task::spawn_blocking(move || library.inventory(&root)));
    }

    /// What was seen by the look that goes on, once it is over.
    pub(super) async fn seen(&mut self) -> gpu_core::Result<Inventory> {
        finished(&mut self.looking).await
    }

    /// Takes into account what was seen of the GPUs of this machine.
    pub(super) fn looked(&mut self, seen: &gpu_core::Result<Inventory>, machine: &Machine) {
        let now = self.now();
        let mut changes = Vec::new();
        for gpu in self.states.patients() {
            let finding = match (seen, machine.inventory.gpu(&gpu)) {
                (Ok(inventory), Some(gpu)) => examine(inventory, gpu),
                (Ok(_), None) => Finding::Away("the driver does not list it".to_owned()),
                (Err(error), _) => Finding::Away(chain(error)),
            };
            changes.extend(self.states.looked(now, &gpu, &finding));
        }
        self.note(changes);
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn note(&mut self, changes: impl IntoIterator<Item = HealthChange>) {
        for change in changes {
            self.ailments.note(&change);
            match change.to {
                Health::Unhealthy => tracing::error!("{change}"),
                Health::Suspect => tracing::warn!("{change}"),
                Health::Healthy => tracing::info!("{change}"),
            }
        }
    }
}
