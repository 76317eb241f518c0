//! Kubernetes Events of the node: its GPUs that fall ill and recover.
//!
//! Best effort: an API server that is not there, or refuses, is said once in the log, and keeps nothing else waiting.

use std::{collections::BTreeMap, path::Path};

use gpu_plugin::{Ailment, Health, Part, Status};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio::sync::watch;

use crate::{cluster, program};

/// Follows what is told of the GPUs and sends Events about the node, on a task of its own; where the API server is not known,
/// that is said and nothing is sent.
pub(crate) async fn start(node: String, kubeconfig: Option<&Path>, status: watch::Receiver<Status>) {
    let reporter = Reporter {
        controller: "gpu-device-plugin".to_owned(),
        instance: Some(node.clone()),
    };
    let config = cluster::config(kubeconfig).await;
    match config.and_then(|config| Ok(Client::try_from(config)?)) {
        Ok(client) => {
            tokio::spawn(send(Recorders::new(client, reporter), reference(node), status));
        }
        Err(error) => tracing::info!("no Events are sent: {}", program::chain(&error)),
    }
}

/// The node, by the name and UID that the kubelet's own Events have, so that `kubectl describe node` shows both.
fn reference(node: String) -> ObjectReference {
    ObjectReference {
        kind: Some("Node".to_owned()),
        uid: Some(node.clone()),
        name: Some(node),
        ..ObjectReference::default()
    }
}

/// How many different Events are counted instead of being sent again.
const MOST: usize = 100;

/// A recorder counts an Event that is like one that it has sent, whatever is said about it: so there is one for each that is said.
struct Recorders {
    client: Client,
    reporter: Reporter,
    of: BTreeMap<Option<String>, Recorder>,
}

impl Recorders {
    fn new(client: Client, reporter: Reporter) -> Self {
        Self {
            client,
            reporter,
            of: BTreeMap::new(),
        }
    }

    fn of(&mut self, event: &Event) -> &Recorder {
        if self.of.len() >= MOST {
            self.of.clear();
        }
        let new = || Recorder::new(self.client.clone(), self.reporter.clone());
        self.of.entry(event.note.clone()).or_insert_with(new)
    }
}

async fn send(mut recorders: Recorders, node: ObjectReference, mut status: watch::Receiver<Status>) {
    let mut known = Known::default();
    let mut said = None;
    loop {
        let now = Known::of(&status.borrow_and_update());
        for event in news(&known, &now) {
            // The recorder counts one that it has sent before, instead of sending another.
            let complaint = recorders
                .of(&event)
                .publish(&event, &node)
                .await
                .err()
                .map(|error| error.to_string());
            if let Some(complaint) = complaint.as_ref().filter(|_| complaint != said) {
                tracing::warn!("an Event could not be sent: {complaint}");
            }
            said = complaint;
        }
        known = now;
        if status.changed().await.is_err() {
            return;
        }
    }
}

/// What is told of.
#[derive(Debug, Default)]
struct Known {
    ailments: BTreeMap<Part, (Health, String)>,
    refused: Option<String>,
}

impl Known {
    fn of(status: &Status) -> Self {
        let keyed = |ailment: &Ailment| (ailment.part.clone(), (ailment.health, ailment.reason.clone()));
        Self {
            ailments: status.ailments.iter().map(keyed).collect(),
            refused: status.refused.clone(),
        }
    }
}

/// What became ill, became worse or better, and recovered, and which configuration is refused. That the same part is ill for
/// another reason is no news.
fn news(before: &Known, now: &Known) -> Vec<Event> {
    let was = &before.ailments;
    let is_news =
        |(part, (health, _)): &(&Part, &(Health, String))| was.get(*part).is_none_or(|(known, _)| known != health);
    let ill = now.ailments.iter().filter(is_news).map(|(part, (health, reason))| {
        let word = if *health == Health::Suspect {
            "GPUSuspect"
        } else {
            "GPUUnhealthy"
        };
        event(
            EventType::Warning,
            word,
            "HealthCheck",
            format!("{part} is {health}: {reason}"),
        )
    });
    let well = was.keys().filter(|part| !now.ailments.contains_key(*part));
    let well = well.map(|part| {
        event(
            EventType::Normal,
            "GPUHealthy",
            "HealthCheck",
            format!("{part} is healthy again, or gone"),
        )
    });
    let refused = now.refused.iter().filter(|_| now.refused != before.refused);
    let refused = refused.map(|reason| {
        event(
            EventType::Warning,
            "GPUConfigRefused",
            "Configure",
            format!("the device plugin's configuration in force stays: {reason}"),
        )
    });
    ill.chain(well).chain(refused).collect()
}

fn event(type_: EventType, reason: &str, action: &str, note: String) -> Event {
    Event {
        type_,
        reason: reason.to_owned(),
        note: Some(note),
        action: action.to_owned(),
        secondary: None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    fn part(gpu: u32) -> Part {
        Part {
            gpu: format!("GPU-00000000-0000-4000-8000-00000000000{gpu}").parse().unwrap(),
            gpu_instance: None,
            compute_instance: None,
        }
    }

    fn status(ailing: &[(u32, Health)]) -> Status {
        let ailment = |(gpu, health): &(u32, Health)| Ailment {
            part: part(*gpu),
            health: *health,
            reason: "Xid 79".to_owned(),
        };
        Status {
            ailments: ailing.iter().map(ailment).collect(),
            ..Status::default()
        }
    }

    #[test]
    fn what_is_told_is_what_changed() {
        #[track_caller]
        fn check(before: &[(u32, Health)], now: &[(u32, Health)], expected: &[&str]) {
            let known = |list: &[(u32, Health)]| Known::of(&status(list));
            let told: Vec<_> = news(&known(before), &known(now))
                .into_iter()
                .map(|event| event.reason)
                .collect();
            assert_eq!(told, expected);
        }
        let (suspect, unhealthy) = (Health::Suspect, Health::Unhealthy);
        check(&[], &[(0, unhealthy)], &["GPUUnhealthy"]);
        check(&[(0, unhealthy)], &[(0, unhealthy)], &[]);
        check(
            &[(0, suspect)],
            &[(0, unhealthy), (1, suspect)],
            &["GPUUnhealthy", "GPUSuspect"],
        );
        check(&[(0, unhealthy), (1, suspect)], &[(1, suspect)], &["GPUHealthy"]);
    }

    #[test]
    fn a_configuration_that_is_refused_is_told_once() {
        let with = |refused: Option<&str>| {
            Known::of(&Status {
                refused: refused.map(str::to_owned),
                ..Status::default()
            })
        };
        let told = |before, now| news(&with(before), &with(now)).len();
        assert_eq!(told(None, Some("line 1")), 1);
        assert_eq!(told(Some("line 1"), Some("line 1")), 0);
        assert_eq!(told(Some("line 1"), Some("line 2")), 1);
        assert_eq!(told(Some("line 1"), None), 0);
    }

    #[tokio::test]
    async fn an_event_is_about_the_node_and_one_that_is_refused_stops_nothing() {
        let asked = Arc::new(Mutex::new(Vec::<Value>::new()));
        let log = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let log = Arc::clone(&log);
            async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let body: Value = serde_json::from_slice(&body).unwrap();
                let refused = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403 });
                let first = log.lock().unwrap().is_empty();
                let (code, answer) = if first { (403, refused) } else { (201, body.clone()) };
                log.lock().unwrap().push(body);
                Ok::<_, std::io::Error>(
                    Response::builder()
                        .status(code)
                        .body(Body::from(answer.to_string().into_bytes()))
                        .unwrap(),
                )
            }
        });
        let reporter = Reporter {
            controller: "gpu-device-plugin".to_owned(),
            instance: None,
        };
        let recorders = Recorders::new(Client::new(service, "default"), reporter);
        let told = watch::Sender::new(status(&[(0, Health::Unhealthy)]));
        let sending = tokio::spawn(send(recorders, reference("n1".to_owned()), told.subscribe()));
        let until = async |count: usize| {
            while asked.lock().unwrap().len() < count {
                tokio::task::yield_now().await;
            }
        };
        until(1).await;
        told.send_replace(status(&[]));
        until(2).await;
        // Two of a kind about different GPUs are two.
        told.send_replace(status(&[(1, Health::Unhealthy)]));
        until(3).await;
        told.send_replace(status(&[(1, Health::Unhealthy), (2, Health::Unhealthy)]));
        until(4).await;
        sending.abort();
        let asked = asked.lock().unwrap();
        assert_eq!(asked[2]["note"], format!("{} is unhealthy: Xid 79", part(1)));
        assert_eq!(asked[3]["note"], format!("{} is unhealthy: Xid 79", part(2)));
        assert_eq!(asked[0]["regarding"]["name"], "n1");
        assert_eq!(asked[0]["type"], "Warning");
        assert_eq!(asked[0]["note"], format!("{} is unhealthy: Xid 79", part(0)));
        assert_eq!(asked[1]["reason"], "GPUHealthy");
    }
}
