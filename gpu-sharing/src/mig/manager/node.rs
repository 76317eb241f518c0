use std::collections::BTreeMap;

use super::names;

/// The labels and annotations of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeMeta {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

/// What to write: values to set, and `None` for keys to remove. Others stay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Labels.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations.
    pub annotations: BTreeMap<String, Option<String>>,
}

impl NodeMeta {
    /// The configuration that is asked for; `None` where there is no label, or an empty one.
    pub fn config(&self) -> Option<&str> {
        self.labels
            .get(names::CONFIG)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The configuration for which the host was rebooted, if that has not been settled since.
    pub fn rebooted_for(&self) -> Option<&str> {
        self.annotations.get(names::REBOOTED).map(String::as_str)
    }

    /// Whether a program that uses GPUs is waiting by its label.
    pub fn is_paused(&self) -> bool {
        names::PAUSED
            .iter()
            .any(|key| self.labels.get(*key).is_some_and(|value| value == names::PAUSE))
    }

    /// Ends every wait: each label that still says so gets back what its [`Lease`](super::Lease) noted, or `true` without a
    /// lease. What somebody has set meanwhile stays. The lease goes, but for the services of the host that did not start.
    pub fn resumed(&self, unstarted: &[String]) -> Change {
        super::lease::restored(self, unstarted)
    }

    /// The node after a change.
    pub fn apply(&mut self, change: &Change) {
        let sides = [
            (&mut self.labels, &change.labels),
            (&mut self.annotations, &change.annotations),
        ];
        for (values, changes) in sides {
            for (key, value) in changes {
                match value {
                    Some(value) => drop(values.insert(key.clone(), value.clone())),
                    None => drop(values.remove(key)),
                }
            }
        }
    }

    /// What of a change is not so already.
    pub fn missing(&self, change: &Change) -> Change {
        let missing = |values: &BTreeMap<String, String>, changes: &BTreeMap<String, Option<String>>| {
            let differs = changes.iter().filter(|(key, value)| values.get(*key) != value.as_ref());
            differs.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        Change {
            labels: missing(&self.labels, &change.labels),
            annotations: missing(&self.annotations, &change.annotations),
        }
    }
}

impl Change {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }

    /// As a JSON merge patch of the node.
    pub fn merge_patch(&self) -> serde_json::Value {
        serde_json::json!({ "metadata": { "labels": self.labels, "annotations": self.annotations } })
    }
}
