use std::collections::BTreeMap;

use gpu_sharing::config::ResourceName;

use crate::{Health, HealthChange, HealthStates, Part};

/// What a plugin offers at a moment, for probes and metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Why something is not offered yet; `None` once the node is served.
    pub waiting: Option<String>,
    /// The resources that are served, by name.
    pub resources: Vec<ResourceStatus>,
    /// The GPUs, or parts of them, that are not healthy.
    pub ailments: Vec<Ailment>,
    /// What is amiss, in words.
    pub problems: Vec<String>,
    /// Why the newest configuration is not in force, and the one before it is; `None` where it is.
    ///
    /// Who reads configurations from somewhere sets it for one that cannot be read.
    pub refused: Option<String>,
}

/// A GPU, or a part of it, that is not healthy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ailment {
    /// Which.
    pub part: Part,
    /// How it is.
    pub health: Health,
    /// Why, in words.
    pub reason: String,
}

/// Why parts of the node are not healthy, as was said when they became so.
#[derive(Debug, Default)]
pub(crate) struct Ailments(BTreeMap<Part, String>);

impl Ailments {
    pub(crate) fn note(&mut self, change: &HealthChange) {
        match change.to {
            Health::Healthy => self.0.remove(&change.part),
            Health::Suspect | Health::Unhealthy => self.0.insert(change.part.clone(), change.reason.clone()),
        };
    }

    /// What ails now; what was forgotten or is gone does not.
    pub(crate) fn told(&self, health: &HealthStates) -> Vec<Ailment> {
        let ailment = |(part, health): (&Part, Health)| Ailment {
            part: part.clone(),
            health,
            reason: self.0.get(part).cloned().unwrap_or_default(),
        };
        health.ailing().map(ailment).collect()
    }
}

/// One resource of a [`Status`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceStatus {
    /// Its name.
    pub name: ResourceName,
    /// How many devices the kubelet is told, replicas counted.
    pub devices: usize,
    /// How many of them are healthy.
    pub healthy: usize,
    /// Whether the kubelet has registered it and listens.
    pub registered: bool,
}

impl Status {
    /// Nothing is offered yet.
    pub(crate) fn wait(&mut self, reason: String) {
        *self = Self {
            waiting: Some(reason),
            refused: self.refused.take(),
            ..Self::default()
        };
    }

    /// Whether the kubelet has all that there is to offer; why not, in words.
    ///
    /// # Errors
    /// Before the node is served, while a resource is not registered, and where nothing is offered.
    pub fn ready(&self) -> Result<(), String> {
        if let Some(reason) = &self.waiting {
            return Err(reason.clone());
        }
        if self.resources.is_empty() {
            return Err("nothing is offered".to_owned());
        }
        match self.resources.iter().find(|resource| !resource.registered) {
            Some(resource) => Err(format!("{} is not registered with the kubelet", resource.name)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: &Status, expected: Result<(), &str>) {
        assert_eq!(status.ready(), expected.map_err(str::to_owned));
    }

    #[test]
    fn a_plugin_is_ready_when_the_kubelet_has_all_its_resources() {
        let resource = |name: &str, registered| ResourceStatus {
            name: name.parse().unwrap(),
            devices: 1,
            healthy: 0,
            registered,
        };
        check(&Status::default(), Err("nothing is offered"));
        let mut waiting = Status::default();
        waiting.wait("no driver".to_owned());
        check(&waiting, Err("no driver"));
        let mut status = Status {
            resources: vec![resource("gpu", true), resource("mig-1g.10gb", false)],
            ..Status::default()
        };
        check(
            &status,
            Err("nvidia.com/mig-1g.10gb is not registered with the kubelet"),
        );
        status.resources[1].registered = true;
        check(&status, Ok(()));
    }
}
