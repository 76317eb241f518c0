//! What probes and metrics tell.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use gpu_sharing::config::ResourceName;

use crate::{
    health,
    metrics::{self, Kind, Metric},
    names::metrics as names,
};

/// What probes and metrics tell.
#[derive(Debug)]
pub(super) struct Told {
    /// Which resources serve; `Err` with why nothing is known yet.
    pub(super) serving: Result<BTreeMap<ResourceName, bool>, String>,
    /// How often each failed and was started again.
    pub(super) failures: BTreeMap<ResourceName, u64>,
    /// Why the newest configuration file is not in force, and the one before it is.
    pub(super) refused: Option<String>,
    /// Why what is configured does not run on this node.
    pub(super) unplanned: Option<String>,
    /// Why the node cannot be read, or daemons not be run.
    pub(super) failed: Option<String>,
    /// How much of the configuration is about what the node does not have, or cannot.
    pub(super) remarks: usize,
}

pub(super) type Shared = Arc<Mutex<Told>>;

/// `/healthz` is well as long as the program runs; `/readyz` while every daemon serves that the newest configuration wants.
pub(super) fn probes(told: Shared) -> impl Fn(&str) -> Option<health::Answer> {
    move |path| match path {
        "/healthz" => Some(Ok("ok".to_owned())),
        "/readyz" => Some(lock(&told).ready().map(|()| "ok".to_owned())),
        health::METRICS => Some(Ok(metrics::text(lock(&told).metrics()))),
        _ => None,
    }
}

impl Default for Told {
    /// As the program starts.
    fn default() -> Self {
        Self {
            serving: Err("starting".to_owned()),
            failures: BTreeMap::new(),
            refused: None,
            unplanned: None,
            failed: None,
            remarks: 0,
        }
    }
}

impl Told {
    fn ready(&self) -> Result<(), String> {
        let serving = self.serving.as_ref().map_err(Clone::clone)?;
        match serving.iter().find(|(_, serves)| !**serves) {
            Some((resource, _)) => Err(format!("the MPS daemon of {resource} does not serve")),
            None => match self.problems().next() {
                Some(problem) => Err(problem.clone()),
                None => Ok(()),
            },
        }
    }

    fn problems(&self) -> impl Iterator<Item = &String> {
        self.refused.iter().chain(&self.unplanned).chain(&self.failed)
    }

    fn metrics(&self) -> Vec<Metric> {
        let label = |resource: &ResourceName| vec![("resource", resource.to_string())];
        let serving = self.serving.iter().flatten();
        vec![
            Metric {
                name: names::MPS_SERVES,
                help: "Whether the MPS daemon of a resource serves",
                kind: Kind::Gauge,
                samples: serving
                    .map(|(resource, serves)| (label(resource), u64::from(*serves)))
                    .collect(),
            },
            Metric {
                name: names::MPS_FAILURES,
                help: "How often the MPS daemon of a resource failed and was started again",
                kind: Kind::Counter,
                samples: self
                    .failures
                    .iter()
                    .map(|(resource, count)| (label(resource), *count))
                    .collect(),
            },
            Metric {
                name: names::MPS_CONFIG_REFUSED,
                help: "Whether the newest configuration is refused and the one before it in force",
                kind: Kind::Gauge,
                samples: vec![(
                    Vec::new(),
                    u64::from(self.refused.is_some() || self.unplanned.is_some()),
                )],
            },
            Metric {
                name: names::MPS_PROBLEMS,
                help: "How many things keep daemons from running as configured; the log names them",
                kind: Kind::Gauge,
                samples: vec![(Vec::new(), (self.problems().count() + self.remarks) as u64)],
            },
        ]
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
