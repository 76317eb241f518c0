//! Labels through the Kubernetes API: of the node itself, or of a `NodeFeature` object that Node Feature Discovery reads.
//!
//! Both look first and write only what is different, so that a node that stays as it is costs no write. Neither retries:
//! that is the caller's, who knows how long it may take.

use std::collections::BTreeMap;

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};

use crate::Labels;

mod node_feature;
mod node_labels;
mod owned;

pub use self::{
    node_feature::{NodeFeature, Owner},
    node_labels::{NodeLabels, Pci},
};

/// The name under which the API server notes what these labels' owner has set.
pub const FIELD_MANAGER: &str = "gpu-feature-discovery";

type Result<T> = std::result::Result<T, kube::Error>;

fn resource(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Server-side apply, which leaves alone what others have set.
async fn apply(
    api: &Api<DynamicObject>,
    manager: &str,
    force: bool,
    name: &str,
    object: &DynamicObject,
) -> Result<DynamicObject> {
    let mut parameters = PatchParams::apply(manager);
    parameters.force = force;
    api.patch(name, &parameters, &Patch::Apply(object)).await
}

fn map(labels: &Labels) -> BTreeMap<String, String> {
    labels
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

/// Whether the API server refused with this status.
fn refused(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// Whether the API server refused to change what another manager has set to another value.
fn contested(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "FieldManagerConflict")
}

#[cfg(test)]
mod tests;
