//! With an API server that is not always well.

use std::{fs, net::TcpListener, process::Command, thread, time::Duration};

use serde_json::json;

use super::{
    Daemon, Setup,
    api_server::{Answer, ApiServer, kubeconfig},
    wait_until,
};

const NODE: &str = "/api/v1/nodes/n1";
const PCI: &str = "feature.node.kubernetes.io/pci-10de.present";
const OBJECT: &str = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/gpu/nodefeatures/nvidia-features-for-n1";

/// The program with the API server at this port, and a round every second.
fn command(setup: &Setup, port: u16, arguments: &[&str]) -> Command {
    let file = setup.path("kubeconfig");
    fs::write(&file, kubeconfig(port)).expect("the file can be written");
    let mut command = setup.program();
    command
        .arg(format!("--kubeconfig={}", file.display()))
        .arg(format!("--nvml-library={}", setup.node.library().display()))
        .args(["--node-name=n1", "--namespace=gpu", "--sleep-interval=1s"])
        .args(arguments);
    command
}

fn start(setup: &Setup, server: &ApiServer, arguments: &[&str]) -> Daemon {
    Daemon::start(command(setup, server.port(), arguments), setup.path("log"))
}

#[test]
fn an_api_server_that_refuses_is_told_of_once_and_asked_again() {
    let setup = Setup::new();
    let server = ApiServer::start(&[
        Answer::Status(429),
        Answer::Status(429),
        Answer::Status(500),
        Answer::Page(200, "<html>I am a proxy</html>"),
        Answer::Nothing,
        Answer::Status(409),
        Answer::Page(502, "<html>\n<head>\n<title>Bad Gateway</title>\n</head>\n</html>"),
    ]);
    let daemon = start(&setup, &server, &["--node-labels"]);
    daemon.wait_to_say("labels are in the node");
    let labels = server.object(NODE).expect("the node is there")["metadata"]["labels"].clone();
    assert_eq!(labels["nvidia.com/gpu.product"], "NVIDIA-H100-80GB-HBM3");

    // Steady: it looks and writes nothing.
    let (looks, writes) = (server.asked("GET"), server.asked("PATCH"));
    wait_until("three more rounds", || server.asked("GET") >= looks + 3);
    assert_eq!(server.asked("PATCH"), writes);

    // What fails later costs no label.
    server.answer(&[Answer::Status(500), Answer::Status(500)]);
    wait_until("it says so", || daemon.said("the server says 500") == 2);
    wait_until("it says that it is over", || daemon.said("labels are in the node") == 2);
    assert_eq!(
        server.object(NODE).expect("the node is there")["metadata"]["labels"],
        labels
    );
    assert_eq!((server.asked("PATCH"), server.asked("DELETE")), (writes, 0));

    let log = daemon.log();
    assert_eq!(daemon.said("the server says 429"), 1, "{log:#?}");
    assert_eq!(daemon.said("the server says 409"), 1, "{log:#?}");
    let page = "<html> <head> <title>Bad Gateway</title> </head> </html> (502)";
    assert_eq!(daemon.said(page), 1, "{log:#?}");
    // And a line each for the answer that is none, the connection, and twice 500 and the labels.
    assert_eq!(log.len(), 9, "{log:#?}");
    daemon.end();
}

#[test]
fn an_object_waits_for_its_owner_to_be_known() {
    let setup = Setup::new();
    // The pod, and then the object.
    let server = ApiServer::start(&[Answer::Status(500), Answer::Status(403)]);
    let daemon = start(&setup, &server, &["--pod-name=p1"]);
    daemon.wait_to_say("labels are in the NodeFeature object `nvidia-features-for-n1`");
    assert_eq!(daemon.said("cannot find the owner of the NodeFeature object"), 1);
    assert_eq!(daemon.said("has no owner: the server says 403"), 1);
    assert_eq!(server.asked("/api/v1/namespaces/gpu/pods/p1"), 2);
    let object = server.object(OBJECT).expect("the object is there");
    assert_eq!(object["spec"]["labels"]["nvidia.com/gpu.count"], "2");

    let (looks, writes) = (server.asked("GET"), server.asked("PATCH"));
    wait_until("three more rounds", || server.asked("GET") >= looks + 3);
    assert_eq!((server.asked("PATCH"), writes), (1, 1));
    daemon.end();
}

#[test]
fn it_ends_in_time_while_the_api_server_says_nothing() {
    let setup = Setup::new();
    let server = ApiServer::start(&[Answer::Silence, Answer::Silence]);
    let mut daemon = start(&setup, &server, &["--node-labels", "--remove-on-exit"]);
    wait_until("it asks", || server.asked("GET") > 0);
    // It has to give up on taking the labels back, and says so.
    assert_eq!(daemon.terminate().code(), Some(1));
    assert_eq!(daemon.said("the labels could not be taken back in time"), 1);
}

#[test]
fn one_shot_fails_with_the_servers_answer() {
    let setup = Setup::new();
    let server = ApiServer::start(&[Answer::Status(503)]);
    let mut command = command(&setup, server.port(), &["--node-labels", "--oneshot"]);
    let output = command.output().expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.contains("error: cannot label the node: ") && message.contains("the server says 503"),
        "{message}"
    );
}

#[test]
fn a_node_without_a_driver_gets_the_labels_of_its_pci_devices() {
    let setup = Setup::new();
    let server = ApiServer::start(&[]);
    setup.node.set_init_error(Some(9)).expect("the driver can be unloaded");
    let arguments = ["--node-labels", "--pci-labels", "--fail-on-init-error=false"];
    let daemon = start(&setup, &server, &arguments);
    daemon.wait_to_say("the GPUs of this node cannot be read: the NVIDIA kernel driver is not loaded");
    let looks = server.asked("GET");
    wait_until("three more rounds", || server.asked("GET") >= looks + 3);
    let labels = server.object(NODE).expect("the node is there")["metadata"]["labels"].clone();
    assert_eq!(labels["feature.node.kubernetes.io/pci-10de.present"], "true");
    assert!(labels["nvidia.com/gpu.product"].is_null());
    assert_eq!(daemon.said("cannot be read"), 1);
    daemon.end();
}

#[test]
fn pci_labels_that_are_refused_keep_no_other_label_away() {
    let setup = Setup::new();
    // The node for its PCI devices, and then the write.
    let server = ApiServer::start(&[Answer::Status(200), Answer::Status(403)]);
    let daemon = start(&setup, &server, &["--node-labels", "--pci-labels"]);
    daemon.wait_to_say("cannot label the node with its PCI devices: the server says 403");
    let labels = || server.object(NODE).expect("the node is there")["metadata"]["labels"].clone();
    assert_eq!(labels()["nvidia.com/gpu.count"], "2");
    daemon.wait_to_say("labels are in the node");
    assert_eq!(labels()[PCI], "true");
    assert_eq!(labels()["nvidia.com/gpu.count"], "2");
    assert_eq!(daemon.log().len(), 2, "{:#?}", daemon.log());
    daemon.end();
}

#[test]
fn a_node_whose_pci_bus_is_out_of_sight_keeps_its_labels() {
    let setup = Setup::new();
    let server = ApiServer::start(&[]);
    let daemon = start(&setup, &server, &["--node-labels", "--pci-labels"]);
    daemon.wait_to_say("labels are in the node");
    let labels = || server.object(NODE).expect("the node is there")["metadata"]["labels"].clone();
    let before = labels();
    assert_eq!(before[PCI], "true");
    assert_eq!(before["nvidia.com/gpu.mode"], "compute");

    let sys = setup.node.root().join("sys");
    let away = setup.path("sys");
    fs::rename(&sys, &away).expect("the folder can be renamed");
    daemon.wait_to_say("cannot look for PCI devices in `");
    let (looks, writes) = (server.asked("GET"), server.asked("PATCH"));
    wait_until("three more rounds", || server.asked("GET") >= looks + 6);
    assert_eq!(labels(), before);
    assert_eq!(server.asked("PATCH"), writes);
    assert_eq!(daemon.said("cannot look for PCI devices in `"), 1);
    fs::rename(&away, &sys).expect("the folder can be renamed");
    daemon.end();
}

#[test]
fn node_feature_discovery_that_comes_later_takes_the_pci_labels_over() {
    let setup = Setup::new();
    let server = ApiServer::start(&[]);
    let daemon = start(&setup, &server, &["--node-labels", "--pci-labels", "--remove-on-exit"]);
    daemon.wait_to_say("labels are in the node");
    let mut node = server.object(NODE).expect("the node is there");
    node["metadata"]["annotations"] = json!({ "nfd.node.kubernetes.io/feature-labels": "pci-10de.present" });
    server.put(NODE, node);
    let writes = server.asked("PATCH");
    daemon.wait_to_say("the labels of PCI devices are Node Feature Discovery's on this node");
    let looks = server.asked("GET");
    wait_until("three more rounds", || server.asked("GET") >= looks + 6);
    assert_eq!(server.asked("PATCH"), writes);
    daemon.end();
    let labels = server.object(NODE).expect("the node is there")["metadata"]["labels"].clone();
    assert_eq!(labels, json!({ PCI: "true" }));
}

#[test]
fn a_cluster_without_node_feature_discovery_is_told_of_with_what_to_do() {
    let setup = Setup::new();
    let missing = Answer::Page(404, "404 page not found\n");
    let server = ApiServer::start(&[missing.clone(), missing.clone(), missing.clone(), missing]);
    let daemon = start(&setup, &server, &[]);
    daemon.wait_to_say("404 page not found (404); without Node Feature Discovery there are no such objects");
    // It may be installed any time.
    daemon.wait_to_say("labels are in the NodeFeature object");
    assert_eq!(daemon.log().len(), 2, "{:#?}", daemon.log());
    daemon.end();
}

#[test]
fn a_role_that_allows_nothing_is_told_of_once() {
    let setup = Setup::new();
    let server = ApiServer::start(&[Answer::Status(403), Answer::Status(403), Answer::Status(403)]);
    let daemon = start(&setup, &server, &["--node-labels"]);
    daemon.wait_to_say("labels are in the node");
    assert_eq!(daemon.said("cannot label the node: the server says 403 (403)"), 1);
    assert_eq!(daemon.log().len(), 2, "{:#?}", daemon.log());
    daemon.end();
}

#[test]
fn a_server_that_cannot_be_reached_is_waited_for() {
    let setup = Setup::new();
    // Nobody listens at a port that was given back.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    drop(listener);
    let daemon = Daemon::start(command(&setup, port, &["--node-labels"]), setup.path("log"));
    daemon.wait_to_say("cannot label the node");
    thread::sleep(Duration::from_secs(3));
    assert_eq!(daemon.said("cannot label the node"), 1, "{:#?}", daemon.log());
    daemon.end();
}
