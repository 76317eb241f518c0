//! Resources that wait for their MPS daemon.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use gpu_sharing::config::ResourceName;
use tokio::time::Instant;

use crate::Mps;

/// How often it is looked whether daemons serve.
const LOOK: Duration = Duration::from_millis(500);

/// Which resources may be handed out: those shared by MPS only while their daemon serves what the plugin hands out.
#[derive(Debug, Default)]
pub(super) struct Gate {
    mps: Option<Arc<Mps>>,
    /// Why a resource waits.
    waiting: BTreeMap<ResourceName, String>,
    next: Option<Instant>,
}

impl Gate {
    /// Watches these resources from here on.
    pub(super) fn watch(&mut self, mps: Option<Arc<Mps>>) {
        self.mps = mps;
        self.look();
    }

    /// Looks; whether it is different now.
    pub(super) fn look(&mut self) -> bool {
        self.next = self.mps.is_some().then(|| Instant::now() + LOOK);
        let names = self.mps.iter().flat_map(|mps| mps.names().map(move |name| (mps, name)));
        let waiting: BTreeMap<_, _> = names
            .filter_map(|(mps, name)| Some((name.clone(), mps.agreed(name).err()?)))
            .collect();
        let changed = waiting != self.waiting;
        for (name, reason) in &waiting {
            if self.waiting.get(name) != Some(reason) {
                tracing::warn!("{reason}: its devices wait");
            }
        }
        for name in self.waiting.keys().filter(|name| !waiting.contains_key(*name)) {
            tracing::info!("{name} waits for no MPS daemon any more");
        }
        self.waiting = waiting;
        changed
    }

    /// When to look again.
    pub(super) fn next_look(&self) -> Option<Instant> {
        self.next
    }

    pub(super) fn is_open(&self, name: &ResourceName) -> bool {
        !self.waiting.contains_key(name)
    }

    /// Why resources wait, if any do.
    pub(super) fn reason(&self) -> Option<String> {
        let reasons: Vec<_> = self.waiting.values().map(String::as_str).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
}
