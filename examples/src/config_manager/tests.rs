//! Against a scripted API server, and with a link that is followed.

use std::{
    collections::VecDeque,
    fs,
    sync::{Arc, Mutex},
};

use futures_util::stream;
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

fn node(version: u32, label: Option<&str>) -> Value {
    let labels = label.map(|label| json!({ "nvidia.com/device-plugin.config": label }));
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": "n1", "resourceVersion": version.to_string(), "labels": labels },
    })
}

fn list(nodes: &[Value]) -> String {
    json!({ "apiVersion": "v1", "kind": "NodeList", "metadata": { "resourceVersion": "1" }, "items": nodes })
        .to_string()
}

fn events(events: &[(&str, Value)]) -> String {
    let line = |(kind, object): &(&str, Value)| format!("{}\n", json!({ "type": kind, "object": object }));
    events.iter().map(line).collect::<Vec<_>>().concat()
}

/// A server that gives these answers in turn and then none; and what it was asked.
fn server(answers: Vec<(u16, String)>) -> (Client, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    let log = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        log.lock().unwrap().push(request.uri().to_string());
        let answer = answers.lock().unwrap().pop_front();
        async move {
            let Some((code, text)) = answer else {
                return std::future::pending().await;
            };
            Ok::<_, std::io::Error>(
                Response::builder()
                    .status(code)
                    .body(Body::from(text.into_bytes()))
                    .unwrap(),
            )
        }
    });
    (Client::new(service, "default"), asked)
}

#[tokio::test]
async fn the_label_is_told_at_once_and_when_it_changes_over_failures_too() {
    let gone = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": "Expired", "code": 410 });
    let (client, asked) = server(vec![
        (500, gone.to_string()),
        (200, list(&[node(1, Some("a"))])),
        (
            200,
            events(&[
                ("MODIFIED", node(2, Some("b"))),
                ("MODIFIED", node(3, None)),
                ("ERROR", gone),
            ]),
        ),
        (200, list(&[node(9, Some("c"))])),
        (200, events(&[("DELETED", node(10, Some("c")))])),
    ]);
    let labels: Vec<_> = labels(client, "n1", "nvidia.com/device-plugin.config")
        .take(5)
        .collect()
        .await;
    assert_eq!(labels, ["a", "b", "", "c", ""]);
    for asked in asked.lock().unwrap().iter() {
        assert!(asked.contains("fieldSelector=metadata.name%3Dn1"), "{asked}");
    }
}

#[tokio::test]
async fn a_node_that_is_not_there_has_no_label() {
    let (client, _) = server(vec![(200, list(&[]))]);
    let mut labels = pin!(labels(client, "n1", "x"));
    assert_eq!(labels.next().await.as_deref(), Some(""));
}

struct Folder {
    dir: tempfile::TempDir,
    manager: ConfigManager,
}

impl Folder {
    fn new(files: &[&str], arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let configs = dir.path().join("configs");
        fs::create_dir(&configs).unwrap();
        for name in files {
            fs::write(configs.join(name), format!("# {name}\n")).unwrap();
        }
        let paths = [
            format!("--config-file-srcdir={}", configs.display()),
            format!("--config-file-dst={}", dir.path().join("config.yaml").display()),
        ];
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        let all = ["config-manager".to_owned(), "--node-name=n1".to_owned()]
            .into_iter()
            .chain(paths)
            .chain(arguments);
        let manager = ConfigManager::try_parse_from(all).unwrap();
        Self { dir, manager }
    }

    fn text(&self) -> Option<String> {
        fs::read_to_string(self.dir.path().join("config.yaml")).ok()
    }
}

#[tokio::test]
async fn once_is_what_the_label_says_or_an_error_that_leaves_the_link() {
    let folder = Folder::new(
        &["default", "ts4"],
        &["--send-signal=false", "--fallback-strategies=named,single"],
    );
    let once = async |text: &str| {
        let done = folder.manager.once(stream::iter([text.to_owned()])).await;
        (done.map_err(|error| error.to_string()), folder.text())
    };
    // The vendor's installs `default` here, before it has asked.
    assert_eq!(once("ts4").await, (Ok(()), Some("# ts4\n".to_owned())));
    let unknown = Err("specified config no-such does not exist".to_owned());
    assert_eq!(once("no-such").await, (unknown, Some("# ts4\n".to_owned())));
    assert_eq!(once("").await, (Ok(()), Some("# default\n".to_owned())));
}

#[tokio::test]
async fn a_signal_that_found_nobody_is_sent_later_and_the_link_stays() {
    let folder = Folder::new(&["a", "b"], &["--process-to-signal=a-program-that-nobody-runs"]);
    let mut state = State::new(&folder.manager);
    state.switch().unwrap();
    assert_eq!(folder.text(), None, "before the label is known nothing is chosen");
    state.label = Some("a".to_owned());
    state.switch().unwrap();
    assert_eq!(folder.text().unwrap(), "# a\n");
    state.signal().unwrap_err();
    assert!(state.pending);

    // An edit of the file is told as well, a look at what is as it was is not.
    let mut state = State::new(&folder.manager);
    state.label = Some("a".to_owned());
    state.switch().unwrap();
    assert!(!state.pending);
    fs::write(folder.dir.path().join("configs/a"), "# edited\n").unwrap();
    state.switch().unwrap();
    assert!(state.pending);
}

#[tokio::test]
async fn a_link_is_not_left_to_a_file_that_is_gone() {
    let folder = Folder::new(
        &["default", "a"],
        &["--send-signal=false", "--fallback-strategies=named"],
    );
    let mut state = State::new(&folder.manager);
    state.label = Some("a".to_owned());
    state.switch().unwrap();
    fs::remove_file(folder.dir.path().join("configs/a")).unwrap();
    state.switch().unwrap();
    assert_eq!(folder.text().unwrap(), "# default\n");
    state.label = Some("no-such".to_owned());
    assert_eq!(
        state.switch().unwrap_err().to_string(),
        "specified config no-such does not exist"
    );
    assert_eq!(folder.text().unwrap(), "# default\n");
}
