//! The node, its pods and events through the Kubernetes API.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::Path,
    time::Duration,
};

use anyhow::Context as _;
use gpu_sharing::mig::manager::{Change, NodeMeta};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Event, Node, Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client,
    api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::json;
use tokio::{sync::watch, time::sleep};
use tokio_stream::StreamExt as _;

use crate::cluster;

/// How often a request that the API server could not answer is sent again, and after which pause; it doubles.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(250);
/// A watch is renewed after that many seconds.
const WATCH_SECONDS: u32 = 290;

/// Why an attempt is given up that nobody asks for any more.
pub(super) const SUPERSEDED: &str = "another value is asked for by now";

/// The node in its cluster.
#[derive(Clone)]
pub(super) struct Cluster {
    client: Client,
    node: String,
    /// The node as it was read last, or told by the watch.
    known: watch::Sender<NodeMeta>,
}

impl Cluster {
    pub(super) async fn new(kubeconfig: Option<&Path>, node: &str) -> anyhow::Result<Self> {
        let mut config = cluster::config(kubeconfig).await?;
        // Longer than a watch is asked to last, so that one that says nothing is not taken for a server that is gone.
        config.read_timeout = Some(Duration::from_secs(u64::from(WATCH_SECONDS) + 10));
        config.write_timeout = Some(Duration::from_secs(30));
        Ok(Self {
            client: Client::try_from(config).context("cannot set up the way to the API server")?,
            node: node.to_owned(),
            known: watch::Sender::default(),
        })
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// The node as it is now.
    pub(super) async fn node(&self) -> anyhow::Result<NodeMeta> {
        let nodes = self.nodes();
        let node = again(|| nodes.get(&self.node)).await;
        let node = meta(&node.with_context(|| format!("cannot read node `{}`", self.node))?);
        self.learn(node.clone());
        Ok(node)
    }

    fn learn(&self, now: NodeMeta) {
        self.known.send_if_modified(|known| {
            let changed = *known != now;
            *known = now;
            changed
        });
    }

    /// Waits for something, and gives it up where the node asks for another value meanwhile.
    pub(super) async fn while_asked<T>(
        &self,
        value: &str,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let mut known = self.known.subscribe();
        tokio::select! {
            done = work => done,
            _ = known.wait_for(|node| node.config() != Some(value)) => anyhow::bail!(SUPERSEDED),
        }
    }

    /// Writes what is not so already.
    pub(super) async fn write(&self, change: &Change) -> anyhow::Result<()> {
        if change.is_empty() {
            return Ok(());
        }
        let nodes = self.nodes();
        let patch = Patch::Merge(change.merge_patch());
        let parameters = PatchParams::default();
        let written = again(|| nodes.patch_metadata(&self.node, &parameters, &patch)).await;
        written
            .map(drop)
            .with_context(|| format!("cannot label node `{}`", self.node))
    }

    /// Follows the node from now on, beside what [`node`](Self::node) reads.
    pub(super) fn follow(&self) -> watch::Receiver<NodeMeta> {
        let cluster = self.clone();
        tokio::spawn(async move {
            let mut pause = PAUSE;
            loop {
                match cluster.follow_once().await {
                    Ok(()) => pause = PAUSE,
                    Err(error) => {
                        tracing::warn!("cannot follow node `{}`: {error:#}", cluster.node);
                        sleep(pause).await;
                        pause = (pause * 2).min(Duration::from_secs(30));
                    }
                }
            }
        });
        self.known.subscribe()
    }

    async fn follow_once(&self) -> anyhow::Result<()> {
        let nodes = self.nodes();
        let field = format!("metadata.name={}", self.node);
        let list = nodes.list(&ListParams::default().fields(&field)).await?;
        let version = list.metadata.resource_version.clone().unwrap_or_default();
        list.items.iter().map(meta).for_each(|node| self.learn(node));
        let parameters = WatchParams::default().fields(&field).timeout(WATCH_SECONDS);
        let mut events = std::pin::pin!(nodes.watch(&parameters, &version).await?);
        while let Some(event) = events.next().await {
            match event? {
                WatchEvent::Added(node) | WatchEvent::Modified(node) => self.learn(meta(&node)),
                WatchEvent::Error(error) => anyhow::bail!("{}", error.message),
                WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
            }
        }
        Ok(())
    }

    fn pods_of(&self, namespace: Option<&str>) -> Api<Pod> {
        match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    /// All pods on this node.
    pub(super) async fn pods(&self) -> anyhow::Result<(Vec<Pod>, String)> {
        let pods = self.pods_of(None);
        let parameters = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        let list = again(|| pods.list(&parameters)).await;
        let list = list.with_context(|| format!("cannot list the pods of node `{}`", self.node))?;
        let version = list.metadata.resource_version.unwrap_or_default();
        Ok((list.items, version))
    }

    /// Waits until something becomes of a pod of this node, from a version of the list on, or for a while.
    pub(super) async fn pod_changes(&self, version: &str) {
        let wait = async {
            let pods = self.pods_of(None);
            let parameters = WatchParams::default()
                .fields(&format!("spec.nodeName={}", self.node))
                .timeout(30);
            let mut events = std::pin::pin!(pods.watch(&parameters, version).await.ok()?);
            while let Some(event) = events.next().await {
                if matches!(event, Ok(WatchEvent::Deleted(_) | WatchEvent::Error(_)) | Err(_)) {
                    return None::<()>;
                }
            }
            None
        };
        // The list is looked at anew in any case: a watch that was refused must not make it a busy loop.
        if tokio::time::timeout(Duration::from_secs(30), wait).await.is_ok() {
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Deletes the pods of these labels `app` in a namespace, as far as they are on this node.
    pub(super) async fn delete_pods(&self, namespace: &str, apps: &[&str]) -> anyhow::Result<()> {
        let pods = self.pods_of(Some(namespace));
        let parameters = ListParams::default()
            .fields(&format!("spec.nodeName={}", self.node))
            .labels(&format!("app in ({})", apps.join(",")));
        let list = again(|| pods.list(&parameters))
            .await
            .context("cannot list the pods that check the node")?;
        for pod in list.items.iter().filter_map(|pod| pod.metadata.name.as_deref()) {
            match pods.delete(pod, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                deleted => drop(deleted.with_context(|| format!("cannot delete pod `{namespace}/{pod}`"))?),
            }
        }
        Ok(())
    }

    /// Asks for an eviction; `false` where a disruption budget forbids it for now.
    pub(super) async fn evict(&self, namespace: &str, name: &str) -> anyhow::Result<bool> {
        match self.pods_of(Some(namespace)).evict(name, &EvictParams::default()).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 429 => Ok(false),
            Err(error) => Err(error).with_context(|| format!("cannot evict pod `{namespace}/{name}`")),
        }
    }

    /// Tells people through an event of the node; one that cannot be sent is logged. The same message again is counted.
    pub(super) async fn event(&self, now: u64, reason: &str, message: &str) {
        let sent = self.send_event(now, reason, message).await;
        if let Err(error) = sent {
            tracing::warn!("cannot send the event `{reason}`: {error:#}");
        }
    }

    async fn send_event(&self, now: u64, reason: &str, message: &str) -> anyhow::Result<()> {
        let mut hasher = DefaultHasher::new();
        (&self.node, reason, message).hash(&mut hasher);
        let name = format!("gpu-mig-manager.{:016x}", hasher.finish());
        let time = json!(timestamp(now));
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        if let Some(told) = events.get_opt(&name).await? {
            let again = json!({ "count": told.count.unwrap_or(1).saturating_add(1), "lastTimestamp": time });
            events
                .patch(&name, &PatchParams::default(), &Patch::Merge(again))
                .await?;
            return Ok(());
        }
        let event = json!({
            "metadata": { "name": name, "namespace": "default" },
            "involvedObject": { "apiVersion": "v1", "kind": "Node", "name": self.node, "uid": self.node },
            "reason": reason,
            "message": message.chars().take(1000).collect::<String>(),
            "type": "Warning",
            "source": { "component": "gpu-mig-manager", "host": self.node },
            "firstTimestamp": time, "lastTimestamp": time, "count": 1,
        });
        let event = serde_json::from_value(event)?;
        events.create(&PostParams::default(), &event).await?;
        Ok(())
    }

    /// Keeps a text in the `ConfigMap` of this node, as what this program's pod owns.
    pub(super) async fn keep(&self, namespace: &str, pod: Option<&str>, text: &str) -> anyhow::Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let name = format!("{}-mig-config", self.node);
        let owner = match pod {
            Some(pod) => self.pods_of(Some(namespace)).get_opt(pod).await.ok().flatten(),
            None => None,
        };
        let owner = owner.and_then(|pod| {
            Some(OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                name: pod.metadata.name?,
                uid: pod.metadata.uid?,
                ..OwnerReference::default()
            })
        });
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "labels": { "app.kubernetes.io/component": "nvidia-mig-manager", "nvidia.com/node-name": self.node },
                "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
            },
            "data": { "config.yaml": text },
        });
        let parameters = PatchParams::apply("gpu-mig-manager").force();
        let patch = Patch::Apply(&map);
        let kept = again(|| maps.patch(&name, &parameters, &patch)).await;
        kept.map(drop)
            .with_context(|| format!("cannot write the ConfigMap `{namespace}/{name}`"))
    }
}

fn meta(node: &Node) -> NodeMeta {
    NodeMeta {
        labels: node.metadata.labels.clone().unwrap_or_default(),
        annotations: node.metadata.annotations.clone().unwrap_or_default(),
    }
}

/// Sends a request again where the server or the way to it failed, and not where it was refused.
async fn again<T, F>(mut request: impl FnMut() -> F) -> kube::Result<T>
where
    F: Future<Output = kube::Result<T>>,
{
    let mut pause = PAUSE;
    for _ in 1..TRIES {
        match request().await {
            Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => {
                return Err(kube::Error::Api(status));
            }
            Err(error) => tracing::debug!("asked again: {error}"),
            answer => return answer,
        }
        sleep(pause).await;
        pause *= 2;
    }
    request().await
}

/// RFC 3339, as the API has times.
fn timestamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, so that a leap day is the last of its year.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (date, month) = (
        day - (153 * month + 2) / 5 + 1,
        if month < 10 { month + 3 } else { month - 9 },
    );
    let year = era * 400 + year + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_api_has_them() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(timestamp(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(timestamp(1_796_083_200), "2026-12-01T00:00:00Z");
    }
}
