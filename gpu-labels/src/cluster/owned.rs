use kube::api::DynamicObject;

/// The keys of the labels of an object that a manager has set by server-side apply.
pub(super) fn labels(object: &DynamicObject, manager: &str) -> Vec<String> {
    let entries = object.metadata.managed_fields.iter().flatten();
    let ours = entries
        .filter(|entry| entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some("Apply"));
    let fields = ours.filter_map(|entry| entry.fields_v1.as_ref()?.0.pointer("/f:metadata/f:labels")?.as_object());
    fields
        .flat_map(|fields| fields.keys())
        .filter_map(|field| field.strip_prefix("f:"))
        .map(ToOwned::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_owned_by_who_applied_them() {
        let object: DynamicObject = serde_json::from_value(serde_json::json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": "n", "managedFields": [
                { "manager": "us", "operation": "Apply", "fieldsV1": { "f:metadata": { "f:labels": { "f:nvidia.com/a": {} } } } },
                { "manager": "us", "operation": "Update", "fieldsV1": { "f:metadata": { "f:labels": { "f:nvidia.com/b": {} } } } },
                { "manager": "kubelet", "operation": "Update", "fieldsV1": { "f:metadata": { "f:labels": { ".": {}, "f:c": {} } } } },
                { "manager": "us", "operation": "Apply", "subresource": "status", "fieldsV1": { "f:status": {} } },
            ] },
        }))
        .unwrap();
        assert_eq!(labels(&object, "us"), ["nvidia.com/a"]);
        assert!(labels(&object, "others").is_empty());
    }
}
