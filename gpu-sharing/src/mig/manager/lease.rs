use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Change, NodeMeta, State, names};

/// Who has asked the programs that use GPUs to wait, and how things were before.
///
/// It is written in one patch with the labels that make them wait, and removed in one with their return, so that whoever
/// finds it can restore all. A manager that starts on the node does that at once with a lease that [is over](Self::is_over);
/// while none runs there, nobody does: then a person gives the labels back what `paused` says, and removes the annotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// The name of the pod that asked.
    pub owner: String,
    /// When who waits goes on at the latest: seconds since 1970, UTC.
    pub deadline: u64,
    /// The labels that were changed and what they were.
    pub paused: BTreeMap<String, String>,
    /// Services of the host that were stopped, in that order. Those that do not start again keep a lease in which nobody waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
}

impl Lease {
    /// The lease that a node has; `None` where it has none, or one that cannot be read.
    pub fn of(node: &NodeMeta) -> Option<Self> {
        serde_json::from_str(node.annotations.get(names::LEASE)?).ok()
    }

    /// A lease for all programs that are deployed on the node. What an earlier lease noted is kept: it is how things were.
    pub fn take(node: &NodeMeta, owner: impl Into<String>, deadline: u64) -> Self {
        let earlier = Self::of(node);
        let deployed = names::PAUSED.iter().filter_map(|&key| {
            let value = node.labels.get(key)?;
            let value = match value.as_str() {
                "false" => return None,
                names::PAUSE => {
                    let before = earlier.as_ref().and_then(|earlier| earlier.paused.get(key));
                    before.cloned().unwrap_or_else(|| "true".to_owned())
                }
                value => value.to_owned(),
            };
            Some((key.to_owned(), value))
        });
        Self {
            owner: owner.into(),
            deadline,
            paused: deployed.collect(),
            services: earlier.map(|earlier| earlier.services).unwrap_or_default(),
        }
    }

    /// Whether nobody is to wait for it any more: it is another's, or lasts longer than it was to. Of one node's managers only
    /// one runs, so that another's owner is gone.
    pub fn is_over(&self, owner: &str, now: u64) -> bool {
        self.owner != owner || now > self.deadline
    }

    /// Makes the programs wait, and reports that the value is being applied.
    pub fn pause(&self, node: &NodeMeta, value: &str) -> Change {
        let mut change = super::Outcome {
            state: State::Pending,
            value,
            reason: None,
        }
        .report();
        let paused = self
            .paused
            .keys()
            .map(|key| (key.clone(), Some(names::PAUSE.to_owned())));
        change.labels.extend(paused);
        change.annotations.insert(names::LEASE.to_owned(), Some(self.to_json()));
        node.missing(&change)
    }

    /// The lease alone, after something was added to it.
    pub fn note(&self) -> Change {
        Change {
            annotations: BTreeMap::from([(names::LEASE.to_owned(), Some(self.to_json()))]),
            ..Change::default()
        }
    }

    fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Ends every wait on a node: each label that still says so gets back what its lease noted, or `true` without a lease.
///
/// What somebody has set meanwhile stays, and so do services that did not start.
pub(super) fn restored(node: &NodeMeta, unstarted: &[String]) -> Change {
    let lease = Lease::of(node);
    let mut change = Change::default();
    for key in names::PAUSED {
        if node.labels.get(key).is_some_and(|value| value == names::PAUSE) {
            let before = lease.as_ref().and_then(|lease| lease.paused.get(key)).cloned();
            change
                .labels
                .insert(key.to_owned(), Some(before.unwrap_or_else(|| "true".to_owned())));
        }
    }
    if node.annotations.contains_key(names::LEASE) {
        let rest = lease.filter(|_| !unstarted.is_empty()).map(|lease| Lease {
            paused: BTreeMap::new(),
            services: unstarted.to_vec(),
            ..lease
        });
        change
            .annotations
            .insert(names::LEASE.to_owned(), rest.map(|rest| rest.to_json()));
    }
    change
}

#[cfg(test)]
mod tests {
    use super::{super::Outcome, *};

    fn node(labels: &[(&str, &str)]) -> NodeMeta {
        let labels = labels
            .iter()
            .map(|(key, value)| (format!("nvidia.com/{key}"), (*value).to_owned()));
        NodeMeta {
            labels: labels.collect(),
            annotations: BTreeMap::new(),
        }
    }

    fn ended(node: &NodeMeta) -> NodeMeta {
        let outcome = Outcome {
            state: State::Success,
            value: "x",
            reason: None,
        };
        let mut after = node.clone();
        after.apply(&outcome.end(node, &[]));
        after.labels.remove(names::STATE);
        after.annotations.clear();
        after
    }

    fn paused(before: &NodeMeta) -> NodeMeta {
        let mut node = before.clone();
        let change = Lease::take(before, "pod", 7).pause(before, "x");
        node.apply(&change);
        node
    }

    #[test]
    fn only_what_is_deployed_waits_and_all_of_it_comes_back() {
        let before = node(&[
            ("gpu.deploy.device-plugin", "true"),
            ("gpu.deploy.dcgm", "false"),
            ("gpu.deploy.client", "yes"),
            ("gpu.deploy.mig-manager", "true"),
        ]);
        let during = paused(&before);
        assert_eq!(during.labels["nvidia.com/gpu.deploy.device-plugin"], names::PAUSE);
        assert_eq!(during.labels["nvidia.com/gpu.deploy.client"], names::PAUSE);
        assert_eq!(during.labels["nvidia.com/gpu.deploy.dcgm"], "false");
        assert!(!during.labels.contains_key("nvidia.com/gpu.deploy.nvsm"));
        assert_eq!(during.labels[names::STATE], "pending");
        assert_eq!(ended(&during), before);
    }

    #[test]
    fn a_second_lease_knows_how_things_were_before_the_first() {
        let before = node(&[("gpu.deploy.client", "yes"), ("gpu.deploy.dcgm", "true")]);
        assert_eq!(ended(&paused(&paused(&before))), before);
    }

    #[test]
    fn what_waits_without_a_lease_is_deployed_again() {
        let lost = node(&[("gpu.deploy.dcgm", names::PAUSE)]);
        assert_eq!(ended(&lost), node(&[("gpu.deploy.dcgm", "true")]));
        let mut broken = lost;
        broken.annotations.insert(names::LEASE.to_owned(), "{".to_owned());
        assert_eq!(ended(&broken), node(&[("gpu.deploy.dcgm", "true")]));
    }

    #[test]
    fn what_somebody_sets_meanwhile_stays() {
        let mut during = paused(&node(&[("gpu.deploy.dcgm", "true")]));
        during
            .labels
            .insert("nvidia.com/gpu.deploy.dcgm".to_owned(), "false".to_owned());
        assert_eq!(ended(&during), node(&[("gpu.deploy.dcgm", "false")]));
    }

    #[test]
    fn a_service_that_did_not_start_stays_noted_while_nobody_waits_any_more() {
        let before = node(&[("gpu.deploy.dcgm", "true")]);
        let mut during = before.clone();
        let mut lease = Lease::take(&before, "pod", 7);
        lease.services = vec!["a".to_owned(), "b".to_owned()];
        during.apply(&lease.pause(&before, "x"));
        during.apply(&during.resumed(&["b".to_owned()]));
        assert_eq!(during.labels["nvidia.com/gpu.deploy.dcgm"], "true");
        let rest = Lease::of(&during).unwrap();
        assert_eq!(
            (rest.paused.len(), rest.services.as_slice()),
            (0, &["b".to_owned()][..])
        );
        assert_eq!(
            Lease::take(&during, "pod", 9).services,
            ["b"],
            "the next lease knows of it"
        );
        during.apply(&during.resumed(&[]));
        assert_eq!(Lease::of(&during), None);
    }

    #[test]
    fn a_lease_is_over_after_its_deadline_and_without_its_owner() {
        let lease = Lease::take(&node(&[]), "pod", 7);
        assert!(!lease.is_over("pod", 7));
        assert!(lease.is_over("pod", 8));
        assert!(lease.is_over("another", 1));
    }
}
