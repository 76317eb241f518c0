//! An API server with one node and its pods, as far as the MIG manager asks it.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// What the server knows, and what it was told.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) labels: serde_json::Map<String, Value>,
    pub(crate) annotations: serde_json::Map<String, Value>,
    pub(crate) pods: Vec<Value>,
    /// Pods that stay although their label says that they should go.
    pub(crate) stubborn: bool,
    /// Whether a disruption budget forbids evictions.
    pub(crate) budget: bool,
    /// Whether the node can be read, but not listed or watched.
    pub(crate) blind: bool,
    /// Requests for the node that are answered with an error before it works again.
    pub(crate) failures: u32,
    /// The number of requests so far, watches left out, and the one that is carried out and never answered.
    pub(crate) requests: u64,
    pub(crate) mute_from: Option<u64>,
    pub(crate) patches: Vec<Value>,
    pub(crate) events: Vec<Value>,
    pub(crate) evicted: Vec<String>,
    version: u64,
}

#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) port: u16,
    state: Arc<Mutex<State>>,
}

impl Api {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let api = Self {
            port: listener.local_addr().expect("an address").port(),
            state: Arc::default(),
        };
        let served = api.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let api = served.clone();
                // A client that goes away is no failure of the server.
                thread::spawn(move || drop(api.answer(stream)));
            }
        });
        api
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panicked with it")
    }

    /// Changes what the server knows; those who watch are told.
    pub(crate) fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        state.version += 1;
        state.schedule();
    }

    fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            if header.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if query.contains("watch=true") && !(self.state().blind && path.ends_with("nodes")) {
            return self.watch(stream, path, query);
        }
        let (status, answer) = self.request(method, path, query, &body);
        let is_mute = {
            let mut state = self.state();
            state.requests += 1;
            state.mute_from.is_some_and(|from| state.requests >= from)
        };
        if is_mute {
            // The connection stays open: the client waits for the answer until it ends itself.
            return stream
                .set_read_timeout(None)
                .and_then(|()| (&stream).read(&mut [0]).map(drop));
        }
        reply(stream, status, &answer)
    }

    fn request(&self, method: &str, path: &str, query: &str, body: &Value) -> (u16, Value) {
        let mut state = self.state();
        let parts: Vec<_> = path.trim_start_matches("/api/v1/").split('/').collect();
        let is_blind = state.blind && parts.len() == 1;
        if parts[0] == "nodes" && (is_blind || state.failures > 0) {
            state.failures -= u32::from(!is_blind);
            return (
                500,
                json!({ "kind": "Status", "status": "Failure", "message": "no", "reason": "x", "code": 500 }),
            );
        }
        match (method, parts.as_slice()) {
            ("GET", ["nodes", _]) => (200, state.node()),
            ("GET", ["nodes"]) => (200, list("Node", state.version, &[state.node()])),
            ("PATCH", ["nodes", _]) => {
                state.patches.push(body["metadata"].clone());
                merge(&mut state.labels, &body["metadata"]["labels"]);
                merge(&mut state.annotations, &body["metadata"]["annotations"]);
                state.version += 1;
                state.schedule();
                (200, state.node())
            }
            ("GET", ["pods"]) => (200, list("Pod", state.version, &state.pods)),
            ("GET", ["namespaces", _, "pods"]) => {
                let app = |pod: &&Value| {
                    pod["metadata"]["labels"]["app"]
                        .as_str()
                        .is_some_and(|app| query.contains(app))
                };
                let found: Vec<_> = state.pods.iter().filter(app).cloned().collect();
                (200, list("Pod", state.version, &found))
            }
            ("POST", ["namespaces", _, "events"] | ["", "apis", "events.k8s.io", "v1", "namespaces", _, "events"]) => {
                state.events.push(body.clone());
                (201, body.clone())
            }
            ("GET" | "PATCH", ["namespaces", _, "events", name]) => {
                let mut events = state.events.iter_mut();
                let Some(event) = events.find(|event| event["metadata"]["name"] == *name) else {
                    return not_found(path);
                };
                for (key, value) in body.as_object().into_iter().flatten() {
                    event[key] = value.clone();
                }
                (200, event.clone())
            }
            ("POST", ["namespaces", _, "pods", _, "eviction"]) if state.budget => {
                let refused = "Cannot evict pod as it would violate the pod's disruption budget.";
                (
                    429,
                    json!({ "kind": "Status", "status": "Failure", "message": refused, "reason": "TooManyRequests", "code": 429 }),
                )
            }
            ("POST", ["namespaces", _, "pods", name, "eviction"]) => {
                state.evicted.push((*name).to_owned());
                state.pods.retain(|pod| pod["metadata"]["name"] != *name);
                state.version += 1;
                (
                    201,
                    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 }),
                )
            }
            _ => not_found(path),
        }
    }

    /// Tells of each change since the version that the client knows, until the client goes.
    fn watch(&self, mut stream: TcpStream, path: &str, query: &str) -> std::io::Result<()> {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n")?;
        let from = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
        let mut known = from.and_then(|from| from.parse().ok()).unwrap_or(0);
        let end = Instant::now() + Duration::from_mins(2);
        while Instant::now() < end {
            let (version, node, pods) = {
                let state = self.state();
                (state.version, state.node(), path.ends_with("pods"))
            };
            if version != known {
                known = version;
                let event = if pods {
                    let pod =
                        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "gone", "namespace": "x" } });
                    json!({ "type": "DELETED", "object": pod })
                } else {
                    json!({ "type": "MODIFIED", "object": node })
                };
                writeln!(stream, "{event}")?;
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl State {
    fn node(&self) -> Value {
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": {
            "name": "n", "resourceVersion": self.version.to_string(), "labels": self.labels, "annotations": self.annotations,
        } })
    }

    /// What the controller of `DaemonSet`s does: pods whose node selector does not match go.
    fn schedule(&mut self) {
        if self.stubborn {
            return;
        }
        let labels = self.labels.clone();
        self.pods.retain(|pod| {
            let selector = pod["spec"]["nodeSelector"].as_object();
            selector.is_none_or(|selector| selector.iter().all(|(key, value)| labels.get(key) == Some(value)))
        });
    }
}

fn not_found(path: &str) -> (u16, Value) {
    (
        404,
        json!({ "kind": "Status", "status": "Failure", "message": path, "reason": "NotFound", "code": 404 }),
    )
}

fn merge(values: &mut serde_json::Map<String, Value>, changes: &Value) {
    for (key, value) in changes.as_object().into_iter().flatten() {
        if value.is_null() {
            values.remove(key);
        } else {
            values.insert(key.clone(), value.clone());
        }
    }
}

fn list(kind: &str, version: u64, items: &[Value]) -> Value {
    json!({
        "apiVersion": "v1", "kind": format!("{kind}List"), "metadata": { "resourceVersion": version.to_string() }, "items": items,
    })
}

fn reply(mut stream: TcpStream, status: u16, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    write!(
        stream,
        "HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
