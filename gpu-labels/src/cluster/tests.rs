//! Against a scripted API server.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// What the server was asked, as `METHOD path?query`, and the body.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// A server that gives these answers in turn.
fn server(answers: Vec<(u16, Value)>) -> (Client, Asked) {
    let asked = Asked::default();
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    let log = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (log, answers) = (Arc::clone(&log), Arc::clone(&answers));
        async move {
            let line = format!("{} {}", request.method(), request.uri().path_and_query().unwrap());
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            log.lock().unwrap().push((line, body));
            let (code, answer) = answers
                .lock()
                .unwrap()
                .pop_front()
                .expect("an answer for every request");
            let answer = Body::from(answer.to_string().into_bytes());
            Ok::<_, std::io::Error>(Response::builder().status(code).body(answer).unwrap())
        }
    });
    (Client::new(service, "default"), asked)
}

fn refusal(code: u16) -> (u16, Value) {
    let reason = if code == 404 { "NotFound" } else { "Forbidden" };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": reason, "code": code,
    });
    (code, status)
}

fn labels() -> Labels {
    Labels::parse_feature_file("nvidia.com/gpu.count=8").unwrap()
}

fn feature(labels: &Value) -> Value {
    json!({
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature",
        "metadata": {
            "name": "nvidia-features-for-n1", "namespace": "gpu", "resourceVersion": "7",
            "labels": { "nfd.node.kubernetes.io/node-name": "n1" },
        },
        "spec": { "features": { "flags": {}, "attributes": {}, "instances": {} }, "labels": labels },
    })
}

const OBJECT: &str = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/gpu/nodefeatures/nvidia-features-for-n1?";
const APPLY: &str = "&force=true&fieldManager=gpu-feature-discovery";

fn lines(asked: &Asked) -> Vec<String> {
    asked.lock().unwrap().iter().map(|(line, _)| line.clone()).collect()
}

#[tokio::test]
async fn an_object_that_is_not_there_is_applied_as_the_vendors_program_makes_it() {
    let ours = json!({ "nvidia.com/gpu.count": "8" });
    let (client, asked) = server(vec![refusal(404), (201, feature(&ours))]);
    assert!(NodeFeature::new(client, "gpu", "n1").publish(&labels()).await.unwrap());
    let apply = format!("PATCH {OBJECT}{APPLY}");
    assert_eq!(lines(&asked), [format!("GET {}", OBJECT.trim_end_matches('?')), apply]);
    let mut expected = feature(&ours);
    expected["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    expected["metadata"]["ownerReferences"] = json!([]);
    assert_eq!(asked.lock().unwrap()[1].1, expected);
}

#[tokio::test]
async fn an_object_that_says_it_already_is_not_written() {
    let (client, asked) = server(vec![(200, feature(&json!({ "nvidia.com/gpu.count": "8" })))]);
    assert!(!NodeFeature::new(client, "gpu", "n1").publish(&labels()).await.unwrap());
    assert_eq!(lines(&asked).len(), 1);
}

#[tokio::test]
async fn labels_that_another_program_left_in_the_object_are_taken_out() {
    let both = feature(&json!({ "nvidia.com/gpu.count": "8", "nvidia.com/old": "x" }));
    let (client, asked) = server(vec![(200, both.clone()), (200, both.clone()), (200, both)]);
    assert!(NodeFeature::new(client, "gpu", "n1").publish(&labels()).await.unwrap());
    let asked = asked.lock().unwrap();
    assert_eq!(asked[2].1, json!({ "spec": { "labels": { "nvidia.com/old": null } } }));
}

#[tokio::test]
async fn a_role_without_patch_is_enough() {
    let old = feature(&json!({}));
    let (client, asked) = server(vec![(200, old.clone()), refusal(403), (200, old)]);
    assert!(NodeFeature::new(client, "gpu", "n1").publish(&labels()).await.unwrap());
    let (line, body) = asked.lock().unwrap()[2].clone();
    assert!(line.starts_with("PUT "), "{line}");
    assert_eq!(body["metadata"]["resourceVersion"], "7");

    let (client, asked) = server(vec![refusal(404), refusal(403), (201, feature(&json!({})))]);
    assert!(NodeFeature::new(client, "gpu", "n1").publish(&labels()).await.unwrap());
    assert!(lines(&asked)[2].starts_with("POST "));
}

#[tokio::test]
async fn what_the_server_answers_badly_is_an_error_and_nothing_more_is_asked() {
    let empty = node(&json!({}));
    for bad in [refusal(409), refusal(429), refusal(500), (200, json!("not an object"))] {
        // To the look, and to the write.
        for (asked_of_object, asked_of_node) in [
            (vec![bad.clone()], vec![bad.clone()]),
            (vec![refusal(404), bad.clone()], vec![(200, empty.clone()), bad.clone()]),
        ] {
            let (count, (client, asked)) = (asked_of_object.len(), server(asked_of_object));
            let object = NodeFeature::new(client, "gpu", "n1");
            assert!(object.publish(&labels()).await.is_err(), "{bad:?}");
            assert_eq!(lines(&asked).len(), count);

            let (client, asked) = server(asked_of_node);
            assert!(
                NodeLabels::new(client, "n1").publish(&labels()).await.is_err(),
                "{bad:?}"
            );
            assert_eq!(lines(&asked).len(), count);
        }
    }
}

#[tokio::test]
async fn the_pods_daemon_set_owns_the_object() {
    let owner = json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "gfd", "uid": "u1", "controller": true });
    let metadata = json!({ "name": "gfd-x", "uid": "u2", "ownerReferences": [owner] });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata });
    let (client, asked) = server(vec![(200, pod), refusal(404), (201, feature(&json!({})))]);
    let workload = Owner::Workload { pod: "gfd-x".into() };
    let mut object = NodeFeature::new(client, "gpu", "n1");
    object.set_owner(&workload).await.unwrap();
    object.publish(&labels()).await.unwrap();
    let owners = asked.lock().unwrap()[2].1["metadata"]["ownerReferences"].clone();
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "name": "gfd-x", "uid": "u2" });
    assert_eq!(owners, json!([owner, pod]));

    let (client, _) = server(vec![refusal(404)]);
    assert!(
        NodeFeature::new(client, "gpu", "n1")
            .set_owner(&workload)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn the_node_owns_the_object_where_that_is_asked_for() {
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1", "uid": "u3" } });
    let (client, asked) = server(vec![(200, node), refusal(404), (201, feature(&json!({})))]);
    let mut object = NodeFeature::new(client, "gpu", "n1");
    object.set_owner(&Owner::Node).await.unwrap();
    object.publish(&labels()).await.unwrap();
    assert_eq!(lines(&asked)[0], "GET /api/v1/nodes/n1");
    let owners = asked.lock().unwrap()[2].1["metadata"]["ownerReferences"].clone();
    assert_eq!(
        owners,
        json!([{ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u3" }])
    );
}

fn node(labels: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1", "labels": labels } })
}

#[tokio::test]
async fn a_node_gets_only_what_it_lacks() {
    let (client, asked) = server(vec![(200, node(&json!({}))), (200, node(&json!({})))]);
    assert!(NodeLabels::new(client, "n1").publish(&labels()).await.unwrap());
    assert_eq!(lines(&asked)[1], format!("PATCH /api/v1/nodes/n1?{APPLY}"));
    let body = asked.lock().unwrap()[1].1.clone();
    assert_eq!(
        body["metadata"],
        json!({ "name": "n1", "labels": { "nvidia.com/gpu.count": "8" } })
    );

    let (client, asked) = server(vec![(200, node(&json!({ "nvidia.com/gpu.count": "8" })))]);
    assert!(!NodeLabels::new(client, "n1").publish(&labels()).await.unwrap());
    assert_eq!(lines(&asked).len(), 1);
}

const PCI: &str = "feature.node.kubernetes.io/pci-10de.present";
const PCI_CLASS: &str = "feature.node.kubernetes.io/pci-0302_10de.present";

/// The labels of PCI devices of a node with these.
fn pci(keys: &[&str]) -> Labels {
    let lines: Vec<_> = keys.iter().map(|key| format!("{key}=true")).collect();
    Labels::parse_feature_file(&lines.join("\n")).unwrap()
}

/// A node on which these labels of PCI devices are ours.
fn labelled(keys: &[&str]) -> Value {
    let values: serde_json::Map<_, _> = keys.iter().map(|key| ((*key).to_owned(), json!("true"))).collect();
    let fields: serde_json::Map<_, _> = keys.iter().map(|key| (format!("f:{key}"), json!({}))).collect();
    let mut node = node(&Value::Object(values));
    node["metadata"]["managedFields"] = json!([{
        "manager": "gpu-feature-discovery-pci", "operation": "Apply", "fieldsV1": { "f:metadata": { "f:labels": fields } },
    }]);
    node
}

/// The same after Node Feature Discovery has noted labels as its own.
fn discovered(mut node: Value, names: &str) -> Value {
    node["metadata"]["annotations"] = json!({ "nfd.node.kubernetes.io/feature-labels": names });
    node
}

#[tokio::test]
async fn pci_labels_are_left_to_node_feature_discovery_where_it_runs() {
    let found = discovered(node(&json!({})), "cpu-model.family");
    let (client, asked) = server(vec![(200, found)]);
    let node_labels = NodeLabels::new(client, "n1");
    assert_eq!(node_labels.publish_pci(&pci(&[PCI])).await.unwrap(), Pci::Others);
    assert_eq!(lines(&asked).len(), 1);

    let (client, asked) = server(vec![(200, node(&json!({}))), (200, node(&json!({})))]);
    let node_labels = NodeLabels::new(client, "n1");
    assert_eq!(node_labels.publish_pci(&pci(&[PCI])).await.unwrap(), Pci::Written);
    let patch = lines(&asked)[1].clone();
    assert!(
        patch.ends_with("fieldManager=gpu-feature-discovery-pci") && !patch.contains("force"),
        "{patch}"
    );
}

#[tokio::test]
async fn a_pci_label_that_another_has_set_otherwise_is_theirs() {
    let (code, mut refused) = refusal(409);
    let (client, _) = server(vec![(200, node(&json!({}))), (code, refused.clone())]);
    assert!(NodeLabels::new(client, "n1").publish_pci(&pci(&[PCI])).await.is_err());

    refused["details"] = json!({ "causes": [{ "reason": "FieldManagerConflict", "field": ".metadata.labels" }] });
    let (client, _) = server(vec![(200, node(&json!({}))), (code, refused)]);
    let node_labels = NodeLabels::new(client, "n1");
    assert_eq!(node_labels.publish_pci(&pci(&[PCI])).await.unwrap(), Pci::Others);
}

#[tokio::test]
async fn node_feature_discovery_that_comes_later_finds_the_labels_and_keeps_them() {
    // It writes only what differs: to take ours back would take the label off the node.
    let node = discovered(labelled(&[PCI, PCI_CLASS]), "pci-10de.present");
    let (client, asked) = server(vec![(200, node.clone())]);
    let all = pci(&[PCI, PCI_CLASS]);
    assert_eq!(
        NodeLabels::new(client, "n1").publish_pci(&all).await.unwrap(),
        Pci::Others
    );
    assert_eq!(lines(&asked).len(), 1);

    // What is no longer true goes, and nothing else is touched.
    let (client, asked) = server(vec![(200, node.clone()), (200, node.clone())]);
    NodeLabels::new(client, "n1").publish_pci(&pci(&[PCI])).await.unwrap();
    assert_eq!(asked.lock().unwrap()[1].1["metadata"]["labels"], json!({ PCI: "true" }));

    // At the end it keeps what it calls its own.
    let (client, asked) = server(vec![(200, node.clone()), (200, node)]);
    NodeLabels::new(client, "n1").withdraw().await.unwrap();
    assert_eq!(asked.lock().unwrap()[1].1["metadata"]["labels"], json!({ PCI: "true" }));
}
