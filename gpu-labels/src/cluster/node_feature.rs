use kube::api::DeleteParams;
use serde_json::json;

use super::{
    Api, Client, DynamicObject, FIELD_MANAGER, Labels, Patch, PatchParams, PostParams, Result, apply, map, refused,
    resource,
};
use crate::names::NFD_NODE_NAME;

/// A `NodeFeature` object (`nfd.k8s-sigs.io/v1alpha1`), from which Node Feature Discovery labels the node.
#[derive(Debug, Clone)]
pub struct NodeFeature {
    api: Api<DynamicObject>,
    namespace: String,
    node: String,
    owners: Vec<serde_json::Value>,
}

/// Whose end ends the object too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// The pod that publishes it and the pod's `DaemonSet`, as the vendor's program has it.
    Workload {
        /// The pod's name, in the object's namespace.
        pod: String,
    },
    /// The node.
    Node,
}

impl NodeFeature {
    /// The object of a node, `nvidia-features-for-<node>`, without an owner.
    ///
    /// It needs the verbs `get` and `patch` on `nodefeatures` in the namespace. Where `patch` is not granted, as the vendor's
    /// role does not, `create` and `update` serve.
    pub fn new(client: Client, namespace: impl Into<String>, node: impl Into<String>) -> Self {
        let namespace = namespace.into();
        Self {
            api: Api::namespaced_with(client, &namespace, &Self::resource()),
            namespace,
            node: node.into(),
            owners: Vec::new(),
        }
    }

    fn resource() -> kube::api::ApiResource {
        resource("nfd.k8s-sigs.io", "v1alpha1", "NodeFeature")
    }

    /// The object's name.
    pub fn name(&self) -> String {
        format!("nvidia-features-for-{}", self.node)
    }

    /// Gives the object an owner, with which it ends. A pod that no `DaemonSet` controls is none.
    ///
    /// # Errors
    /// What the API server or the way to it answers; then the owner is as it was.
    pub async fn set_owner(&mut self, owner: &Owner) -> Result<()> {
        self.owners = self.find(owner).await?;
        Ok(())
    }

    async fn find(&self, owner: &Owner) -> Result<Vec<serde_json::Value>> {
        let reference = |kind: &str, name: &str, uid: Option<&str>| json!({ "apiVersion": "v1", "kind": kind, "name": name, "uid": uid.unwrap_or_default() });
        match owner {
            Owner::Node => {
                let nodes: Api<DynamicObject> =
                    Api::all_with(self.api.clone().into_client(), &resource("", "v1", "Node"));
                let node = nodes.get(&self.node).await?;
                Ok(vec![reference("Node", &self.node, node.metadata.uid.as_deref())])
            }
            Owner::Workload { pod: name } => {
                let pods = resource("", "v1", "Pod");
                let pods: Api<DynamicObject> =
                    Api::namespaced_with(self.api.clone().into_client(), &self.namespace, &pods);
                let pod = pods.get(name).await?;
                let mut owners = pod.metadata.owner_references.iter().flatten();
                let set = owners.find(|owner| owner.kind == "DaemonSet" && owner.controller == Some(true));
                Ok(set.map_or_else(Vec::new, |set| {
                    vec![
                        json!({
                            "apiVersion": set.api_version, "kind": set.kind, "name": set.name, "uid": set.uid,
                            "controller": true,
                        }),
                        reference("Pod", name, pod.metadata.uid.as_deref()),
                    ]
                }))
            }
        }
    }

    /// Makes the object say these labels and no others; `false` where it does already, and nothing is written.
    ///
    /// # Errors
    /// What the API server or the way to it answers. 404 also where there is no such kind of object: Node Feature Discovery is
    /// not installed.
    pub async fn publish(&self, labels: &Labels) -> Result<bool> {
        let wanted = self.object(labels);
        let present = self.api.get_opt(&self.name()).await?;
        if present.as_ref().is_some_and(|present| same(present, &wanted)) {
            return Ok(false);
        }
        match apply(&self.api, FIELD_MANAGER, true, &self.name(), &wanted).await {
            Ok(written) => self.drop_others(&written, labels).await?,
            Err(error) if refused(&error, 403) => self.replace(present, wanted).await?,
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Removes the object; that there is none is fine.
    ///
    /// # Errors
    /// What the API server or the way to it answers.
    pub async fn withdraw(&self) -> Result<()> {
        match self.api.delete(&self.name(), &DeleteParams::default()).await {
            Err(error) if !refused(&error, 404) => Err(error),
            _ => Ok(()),
        }
    }

    fn object(&self, labels: &Labels) -> DynamicObject {
        let mut object = DynamicObject::new(&self.name(), &Self::resource());
        object.metadata.namespace = Some(self.namespace.clone());
        let label = (NFD_NODE_NAME.to_owned(), self.node.clone());
        object.metadata.labels = Some([label].into());
        object.metadata.owner_references = serde_json::from_value(json!(self.owners)).ok();
        let features = json!({ "flags": {}, "attributes": {}, "instances": {} });
        object.data = json!({ "spec": { "features": features, "labels": map(labels) } });
        object
    }

    /// Takes out labels that another program left in the object: an apply removes only what it set itself.
    async fn drop_others(&self, written: &DynamicObject, labels: &Labels) -> Result<()> {
        let present = written
            .data
            .pointer("/spec/labels")
            .and_then(serde_json::Value::as_object);
        let others = present.into_iter().flat_map(|present| present.keys());
        let nulls: serde_json::Map<_, _> = others
            .filter(|key| labels.get(key).is_none())
            .map(|key| (key.clone(), serde_json::Value::Null))
            .collect();
        if !nulls.is_empty() {
            let patch = Patch::Merge(json!({ "spec": { "labels": nulls } }));
            self.api.patch(&self.name(), &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    async fn replace(&self, present: Option<DynamicObject>, mut wanted: DynamicObject) -> Result<()> {
        let parameters = PostParams::default();
        match present {
            Some(present) => {
                wanted.metadata.resource_version = present.metadata.resource_version;
                self.api.replace(&self.name(), &parameters, &wanted).await?
            }
            None => self.api.create(&parameters, &wanted).await?,
        };
        Ok(())
    }
}

/// Whether an object says what is wanted. Fields that the server fills in do not count.
fn same(present: &DynamicObject, wanted: &DynamicObject) -> bool {
    let labels = |object: &DynamicObject| object.data.pointer("/spec/labels").cloned();
    let uids = |object: &DynamicObject| -> Vec<String> {
        let owners = object.metadata.owner_references.iter().flatten();
        owners.map(|owner| owner.uid.clone()).collect()
    };
    let of_node = wanted.metadata.labels.iter().flatten();
    let found = |key: &str| present.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    labels(present) == labels(wanted)
        && uids(present) == uids(wanted)
        && of_node.into_iter().all(|(key, value)| found(key) == Some(value))
}
