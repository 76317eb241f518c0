use std::collections::BTreeSet;

use super::{Api, Client, DynamicObject, FIELD_MANAGER, Labels, Result, apply, contested, map, owned, resource};
use crate::names::{NFD_LABELS, PCI_DOMAIN};

/// The node's own labels, for a cluster without Node Feature Discovery.
///
/// Labels that others have set are left alone, unless they go by the same keys of the domain `nvidia.com`.
#[derive(Debug, Clone)]
pub struct NodeLabels {
    api: Api<DynamicObject>,
    node: String,
}

/// What became of the labels of PCI devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pci {
    /// They were written.
    Written,
    /// They are there.
    Unchanged,
    /// Node Feature Discovery runs on this node, and they are its.
    Others,
}

/// The name under which labels of PCI devices are noted: a manager's apply takes back what it leaves out.
const PCI_MANAGER: &str = "gpu-feature-discovery-pci";

impl NodeLabels {
    /// The labels of this node. It needs the verbs `get` and `patch` on it.
    pub fn new(client: Client, node: impl Into<String>) -> Self {
        Self {
            api: Api::all_with(client, &resource("", "v1", "Node")),
            node: node.into(),
        }
    }

    /// Makes the node have these labels, and of those that were published before no others; `false` where it is so already,
    /// and nothing is written.
    ///
    /// # Errors
    /// What the API server or the way to it answers.
    pub async fn publish(&self, labels: &Labels) -> Result<bool> {
        let node = self.api.get(&self.node).await?;
        self.write(&node, FIELD_MANAGER, true, labels).await
    }

    /// Makes the node have the labels of PCI devices, unless Node Feature Discovery does it. Then what was published before it
    /// came stays while it is true, and nothing is added.
    ///
    /// # Errors
    /// What the API server or the way to it answers.
    pub async fn publish_pci(&self, labels: &Labels) -> Result<Pci> {
        let node = self.api.get(&self.node).await?;
        if others(&node) {
            self.keep(&node, |key| labels.get(key).is_some()).await?;
            return Ok(Pci::Others);
        }
        match self.write(&node, PCI_MANAGER, false, labels).await {
            Ok(true) => Ok(Pci::Written),
            Ok(false) => Ok(Pci::Unchanged),
            Err(error) if contested(&error) => Ok(Pci::Others),
            Err(error) => Err(error),
        }
    }

    /// Takes all that was published off the node, but for what Node Feature Discovery has come to call its own.
    ///
    /// # Errors
    /// What the API server or the way to it answers.
    pub async fn withdraw(&self) -> Result<()> {
        let node = self.api.get(&self.node).await?;
        self.write(&node, FIELD_MANAGER, true, &Labels::default()).await?;
        let theirs = claimed(&node);
        self.keep(&node, |key| theirs.contains(key)).await
    }

    /// Takes back the published labels of PCI devices, but for those that `stay`.
    ///
    /// Node Feature Discovery writes only what differs. So a label that it found on the node is its own as well, while the
    /// server knows of us alone, and would remove it with our claim; it would be missing until its next round, an hour later.
    async fn keep(&self, node: &DynamicObject, stay: impl Fn(&str) -> bool) -> Result<()> {
        let present = node.metadata.labels.as_ref();
        let published = owned::labels(node, PCI_MANAGER).into_iter().filter(|key| stay(key));
        let kept = published.filter_map(|key| {
            let value = present?.get(&key)?.parse().ok()?;
            Some((key.parse().ok()?, value))
        });
        self.write(node, PCI_MANAGER, false, &kept.collect()).await.map(drop)
    }

    async fn write(&self, node: &DynamicObject, manager: &str, force: bool, labels: &Labels) -> Result<bool> {
        if !differs(node, manager, labels) {
            return Ok(false);
        }
        let mut object = DynamicObject::new(&self.node, &resource("", "v1", "Node"));
        object.metadata.labels = Some(map(labels)).filter(|labels| !labels.is_empty());
        apply(&self.api, manager, force, &self.node, &object).await?;
        Ok(true)
    }
}

/// Whether a node lacks one of these labels, or has one more that this manager set.
fn differs(node: &DynamicObject, manager: &str, labels: &Labels) -> bool {
    let present = node.metadata.labels.as_ref();
    let has =
        |key: &str, value: &str| present.is_some_and(|present| present.get(key).is_some_and(|found| found == value));
    let missing = labels.iter().any(|(key, value)| !has(key.as_str(), value.as_str()));
    missing || owned::labels(node, manager).iter().any(|key| labels.get(key).is_none())
}

/// Whether Node Feature Discovery labels this node: it says so, or there are labels of its domain that are not ours.
fn others(node: &DynamicObject) -> bool {
    let ours = owned::labels(node, PCI_MANAGER);
    let keys = node.metadata.labels.iter().flatten().map(|(key, _)| key);
    let mut theirs = keys.filter(|key| key.split_once('/').is_some_and(|(domain, _)| domain == PCI_DOMAIN));
    !claimed(node).is_empty() || theirs.any(|key| !ours.contains(key))
}

/// The keys of the labels that Node Feature Discovery has noted as its own.
fn claimed(node: &DynamicObject) -> BTreeSet<String> {
    let annotations = node.metadata.annotations.iter().flatten();
    let notes = annotations.filter(|(key, _)| key.ends_with(NFD_LABELS));
    let names = notes
        .flat_map(|(_, names)| names.split(','))
        .filter(|name| !name.is_empty());
    // Those of its own domain are noted without it.
    let key = |name: &str| {
        if name.contains('/') {
            name.to_owned()
        } else {
            format!("{PCI_DOMAIN}/{name}")
        }
    };
    names.map(key).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(labels: &Value, manager: &str, owned: &Value) -> DynamicObject {
        let entry =
            json!({ "manager": manager, "operation": "Apply", "fieldsV1": { "f:metadata": { "f:labels": owned } } });
        let metadata = json!({ "name": "n", "labels": labels, "managedFields": [entry] });
        serde_json::from_value(json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata })).unwrap()
    }

    #[test]
    fn only_what_is_missing_or_left_over_is_written() {
        let check = |present: Value, owned: Value, expected: bool| {
            let labels = Labels::parse_feature_file("nvidia.com/gpu.count=8").unwrap();
            assert_eq!(
                differs(&node(&present, "us", &owned), "us", &labels),
                expected,
                "{present} {owned}"
            );
        };
        check(json!({}), json!({}), true);
        check(json!({ "nvidia.com/gpu.count": "7" }), json!({}), true);
        check(json!({ "nvidia.com/gpu.count": "8", "other": "x" }), json!({}), false);
        check(
            json!({ "nvidia.com/gpu.count": "8" }),
            json!({ "f:nvidia.com/gpu.count": {} }),
            false,
        );
        check(
            json!({ "nvidia.com/gpu.count": "8" }),
            json!({ "f:nvidia.com/gpu.old": {} }),
            true,
        );
    }

    #[test]
    fn labels_of_the_pci_domain_that_are_not_ours_are_another_programs() {
        let check = |present: Value, owned: Value, expected: bool| {
            assert_eq!(
                others(&node(&present, PCI_MANAGER, &owned)),
                expected,
                "{present} {owned}"
            );
        };
        let key = "feature.node.kubernetes.io/pci-10de.present";
        check(json!({ "kubernetes.io/hostname": "n" }), json!({}), false);
        check(json!({ key: "true" }), json!({ format!("f:{key}"): {} }), false);
        check(json!({ key: "true" }), json!({}), true);
    }

    #[test]
    fn node_feature_discovery_notes_its_labels_with_and_without_its_domain() {
        let check = |annotation: &str, names: &str, expected: &[&str]| {
            let mut node = node(&json!({}), PCI_MANAGER, &json!({}));
            node.metadata.annotations = Some([(annotation.to_owned(), names.to_owned())].into());
            let claimed = claimed(&node);
            assert_eq!(claimed.iter().map(String::as_str).collect::<Vec<_>>(), expected);
            assert_eq!(others(&node), !expected.is_empty());
        };
        let pci = "feature.node.kubernetes.io/pci-10de.present";
        let both = [pci, "nvidia.com/gpu.count"];
        check(NFD_LABELS, "pci-10de.present,nvidia.com/gpu.count", &both);
        check(
            "second.nfd.node.kubernetes.io/feature-labels",
            "pci-10de.present",
            &[pci],
        );
        check(NFD_LABELS, "", &[]);
        check("nfd.node.kubernetes.io/worker.version", "v0.17", &[]);
    }
}
