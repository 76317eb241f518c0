//! Specs as the CDI project's own schema has them.

use std::collections::BTreeSet;

use gpu_cdi::{GenerateOptions, Spec};
use jsonschema::{Registry, Validator};
use serde_json::{Value, json};

use crate::{
    mig,
    upstream::{files, profile, record},
};

fn schema() -> Validator {
    let read = |name: &str| -> Value {
        serde_json::from_str(&record(&format!("cdi-1.1.0/{name}"))).expect("a schema in JSON")
    };
    let registry = Registry::new()
        .add("json-schema:///defs.json", read("defs.json"))
        .expect("the definitions")
        .prepare()
        .expect("the definitions");
    jsonschema::options()
        .with_base_uri("json-schema:///schema.json")
        .with_registry(&registry)
        .build(&read("schema.json"))
        .expect("a schema")
}

#[track_caller]
fn check(spec: &Spec) {
    let value = serde_json::to_value(spec).expect("JSON");
    let problems: Vec<_> = schema().iter_errors(&value).map(|error| error.to_string()).collect();
    assert_eq!(problems, Vec::<String>::new());
}

#[test]
fn what_is_generated_is_what_the_schema_says() {
    let node = profile("a100", 2);
    let files_of_node = files(&node, "/driver-root");
    let mut options = GenerateOptions::default();
    check(&gpu_cdi::generate(&node, &files_of_node, &options).expect("a spec").spec);
    check(&gpu_cdi::generate_management(&files_of_node, &options).expect("a spec"));
    check(&gpu_cdi::generate_none(&files_of_node, &options).expect("a spec"));

    let divided = mig::divided("uniform");
    let files_of_mig = mig::files(&mig::root(&divided));
    options.coherent_annotations = true;
    options.combined_hook = true;
    let spec = gpu_cdi::generate(&divided, &files_of_mig, &options)
        .expect("a spec")
        .spec;
    check(&spec);
    for part in gpu_cdi::split_by_coherence(&spec).expect("parts") {
        check(&part);
    }
}

fn everything() -> Spec {
    serde_json::from_value(json!({
        "cdiVersion": "1.1.0", "kind": "example.com/all", "annotations": { "a": "b" },
        "devices": [{ "name": "0", "annotations": { "c": "d" }, "containerEdits": {
            "env": ["A=b"],
            "deviceNodes": [{ "path": "/dev/a", "hostPath": "/dev/b", "type": "c", "major": 1, "minor": 3, "fileMode": 438,
                "permissions": "rwm", "uid": 1, "gid": 2 }],
            "netDevices": [{ "hostInterfaceName": "eth0", "name": "eth1" }],
            "hooks": [{ "hookName": "createContainer", "path": "/h", "args": ["h"], "env": ["A=b"], "timeout": 1 }],
            "mounts": [{ "hostPath": "/a", "containerPath": "/b", "options": ["ro"], "type": "bind" }],
            "intelRdt": { "closID": "a", "schemata": ["L3:0=f"], "enableMonitoring": true },
            "additionalGids": [7],
        }}],
    }))
    .expect("a spec")
}

#[test]
fn everything_that_a_spec_can_say_is_known_to_the_schema() {
    let spec = everything();
    spec.validate().expect("a valid spec");
    check(&spec);
    // The schema is read, and does refuse.
    let problems = schema()
        .iter_errors(&json!({ "cdiVersion": 1, "devices": [{ "name": "0" }] }))
        .count();
    assert!(problems >= 3, "{problems}");
}

#[test]
fn the_schema_knows_the_keys_of_a_spec() {
    let value = record("cdi-1.1.0/defs.json");
    let value: Value = serde_json::from_str(&value).expect("JSON");
    let keys = value["definitions"]["containerEdits"]["properties"]
        .as_object()
        .expect("properties");
    let keys: BTreeSet<&str> = keys.keys().map(String::as_str).collect();
    let ours = serde_json::to_value(&everything().devices[0].container_edits).expect("JSON");
    let ours = ours.as_object().expect("edits").keys().map(String::as_str);
    assert_eq!(keys, ours.collect());
}
