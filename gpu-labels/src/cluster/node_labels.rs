use super::{Api, Client, DynamicObject, FIELD_MANAGER, Labels, Result, apply, map, owned, refused, resource};
use crate::names::PCI_DOMAIN;

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
/// The annotation with which Node Feature Discovery notes its own labels.
const NFD_ANNOTATION: &str = "nfd.node.kubernetes.io/feature-labels";

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

    /// Makes the node have the labels of PCI devices, unless Node Feature Discovery does it.
    ///
    /// # Errors
    /// What the API server or the way to it answers.
    pub async fn publish_pci(&self, labels: &Labels) -> Result<Pci> {
        let node = self.api.get(&self.node).await?;
        let annotations = node.metadata.annotations.as_ref();
        let theirs = annotations.and_then(|annotations| annotations.get(NFD_ANNOTATION));
        if theirs.is_some_and(|theirs| !theirs.is_empty()) || others(&node) {
            // Also with what was ours before it came: what it has set since stays, because it is set twice.
            if !owned::labels(&node, PCI_MANAGER).is_empty() {
                self.write(&node, PCI_MANAGER, false, &Labels::default()).await?;
            }
            return Ok(Pci::Others);
        }
        match self.write(&node, PCI_MANAGER, false, labels).await {
            Ok(true) => Ok(Pci::Written),
            Ok(false) => Ok(Pci::Unchanged),
            // Somebody has set one to another value.
            Err(error) if refused(&error, 409) => Ok(Pci::Others),
            Err(error) => Err(error),
        }
    }

    /// Takes all that was published off the node.
    ///
    /// # Errors
    /// What the API server or the way to it answers.
    pub async fn withdraw(&self) -> Result<()> {
        let node = self.api.get(&self.node).await?;
        for manager in [FIELD_MANAGER, PCI_MANAGER] {
            self.write(&node, manager, true, &Labels::default()).await?;
        }
        Ok(())
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

/// Whether anybody but us has set labels of Node Feature Discovery's domain.
fn others(node: &DynamicObject) -> bool {
    let ours = owned::labels(node, PCI_MANAGER);
    let keys = node.metadata.labels.iter().flatten().map(|(key, _)| key);
    let mut theirs = keys.filter(|key| key.split_once('/').is_some_and(|(domain, _)| domain == PCI_DOMAIN));
    theirs.any(|key| !ours.contains(key))
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
}
