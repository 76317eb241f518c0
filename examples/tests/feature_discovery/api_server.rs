//! An API server that gives answers as told, and otherwise keeps the objects that it is sent.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

/// How the next request is answered.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// With an error of this code.
    Status(u16),
    /// With this code and text, as who is no API server.
    Page(u16, &'static str),
    /// Not at all: the connection is closed.
    Nothing,
    /// Not at all, and the connection stays.
    Silence,
}

#[derive(Debug, Default)]
struct State {
    answers: VecDeque<Answer>,
    objects: BTreeMap<String, Value>,
    asked: Vec<String>,
}

/// Serves until the test's process ends.
#[derive(Debug, Clone)]
pub(super) struct ApiServer {
    state: Arc<Mutex<State>>,
    port: u16,
}

impl ApiServer {
    pub(super) fn start(answers: &[Answer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let server = Self {
            state: Arc::default(),
            port: listener.local_addr().expect("it has an address").port(),
        };
        server.answer(answers);
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" } });
        server.lock().objects.insert("/api/v1/nodes/n1".to_owned(), node);
        let serving = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = serving.clone();
                // A client may go away at any time.
                thread::spawn(move || server.serve(stream));
            }
        });
        server
    }

    /// Answers the next requests so.
    pub(super) fn answer(&self, answers: &[Answer]) {
        self.lock().answers.extend(answers.iter().cloned());
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// How often something was asked with this in its first line.
    pub(super) fn asked(&self, words: &str) -> usize {
        self.lock().asked.iter().filter(|line| line.contains(words)).count()
    }

    /// Replaces an object, as somebody else would.
    pub(super) fn put(&self, path: &str, object: Value) {
        self.lock().objects.insert(path.to_owned(), object);
    }

    pub(super) fn object(&self, path: &str) -> Option<Value> {
        self.lock().objects.get(path).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no thread panicked")
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut first = String::new();
        reader.read_line(&mut first)?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            match line.trim().to_ascii_lowercase().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().expect("a number"),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let (code, answer) = match self.decide(&first, &body) {
            Answer::Nothing => return Ok(()),
            Answer::Silence => {
                thread::sleep(Duration::from_mins(2));
                return Ok(());
            }
            Answer::Page(code, text) => (code, text.to_owned()),
            Answer::Status(200) => (200, self.object(path(&first)).unwrap_or_default().to_string()),
            Answer::Status(code) => (code, status(code)),
        };
        write!(
            stream,
            "HTTP/1.1 {code} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{answer}",
            answer.len()
        )
    }

    fn decide(&self, first: &str, body: &[u8]) -> Answer {
        let mut state = self.lock();
        state.asked.push(first.trim().to_owned());
        if let Some(answer) = state.answers.pop_front() {
            return answer;
        }
        let path = path(first);
        match first.split(' ').next() {
            Some("PATCH") => {
                let applied = serde_json::from_slice(body).expect("an object");
                let object = match state.objects.get(path) {
                    Some(node) if node["kind"] == "Node" => apply(node.clone(), &applied, manager(first)),
                    _ => applied,
                };
                state.objects.insert(path.to_owned(), object);
                Answer::Status(200)
            }
            Some("GET") if state.objects.contains_key(path) => Answer::Status(200),
            _ => Answer::Status(404),
        }
    }
}

/// The file by which a client finds the server at a port of this machine.
pub(super) fn kubeconfig(port: u16) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": format!("http://127.0.0.1:{port}") } }],
        "users": [{ "name": "u", "user": {} }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
    })
    .to_string()
}

/// A server-side apply of labels: those of the manager that are not applied again go, those of others stay.
fn apply(mut node: Value, applied: &Value, manager: &str) -> Value {
    let metadata = &mut node["metadata"];
    let mut labels = metadata["labels"].as_object().cloned().unwrap_or_default();
    let mut entries = metadata["managedFields"].as_array().cloned().unwrap_or_default();
    let ours = entries.iter().position(|entry| entry["manager"] == manager);
    if let Some(ours) = ours.map(|index| entries.remove(index)) {
        let fields = ours["fieldsV1"]["f:metadata"]["f:labels"].as_object().cloned();
        labels.retain(|key, _| {
            fields
                .as_ref()
                .is_none_or(|fields| !fields.contains_key(&format!("f:{key}")))
        });
    }
    let applied = applied["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let fields: Value = applied.keys().map(|key| (format!("f:{key}"), json!({}))).collect();
    entries.push(json!({
        "manager": manager, "operation": "Apply", "fieldsV1": { "f:metadata": { "f:labels": fields } },
    }));
    labels.extend(applied);
    (metadata["labels"], metadata["managedFields"]) = (labels.into(), entries.into());
    node
}

/// Of a request's first line.
fn manager(first: &str) -> &str {
    let after = first.split_once("fieldManager=").map_or("", |(_, after)| after);
    after.split(['&', ' ']).next().unwrap_or_default()
}

/// Of a request's first line, without what comes after a question mark.
fn path(first: &str) -> &str {
    let path = first.split(' ').nth(1).unwrap_or_default();
    path.split('?').next().unwrap_or_default()
}

fn status(code: u16) -> String {
    let reason = if code == 404 { "NotFound" } else { "" };
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "message": format!("the server says {code}"), "reason": reason,
    })
    .to_string()
}
