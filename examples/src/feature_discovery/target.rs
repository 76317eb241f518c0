//! Where labels go.

use std::time::Duration;

use anyhow::{Context, anyhow};
use gpu_labels::{
    FeatureFile, Labels,
    cluster::{NodeFeature, NodeLabels, Owner, Pci},
    gpu_sharing::config::Config,
    kube::{Client, client::ClientBuilder},
};
use tower::limit::RateLimitLayer;

use super::arguments::{FeatureDiscovery, OwnerKind};
use crate::{cluster, program};

/// Where labels go.
#[derive(Debug)]
pub(super) enum Target {
    Output,
    File(FeatureFile),
    NodeFeature {
        feature: NodeFeature,
        /// An owner that has not been found yet.
        owner: Option<Owner>,
    },
    Node {
        labels: NodeLabels,
        pci: bool,
    },
}

impl Target {
    pub(super) async fn new(program: &FeatureDiscovery, config: &Config) -> anyhow::Result<Self> {
        let node = &program.cluster.node_name;
        if !program.ours.node_labels && !config.use_node_feature_api {
            return Ok(match &config.gfd.output_file {
                Some(path) => Self::File(FeatureFile::new(path)),
                None => Self::Output,
            });
        }
        let client = client(program).await?;
        if program.ours.node_labels {
            let pci = program.ours.pci_labels;
            return Ok(Self::Node {
                labels: NodeLabels::new(client, node),
                pci,
            });
        }
        let pod = &program.cluster.pod_name;
        Ok(Self::NodeFeature {
            feature: NodeFeature::new(client, &program.cluster.namespace, node),
            owner: match program.ours.node_feature_owner {
                OwnerKind::Workload if !pod.is_empty() => Some(Owner::Workload { pod: pod.clone() }),
                OwnerKind::Node => Some(Owner::Node),
                OwnerKind::Workload | OwnerKind::None => None,
            },
        })
    }

    /// Makes the labels be there; whether that took a write.
    pub(super) async fn publish(&mut self, labels: &Labels) -> anyhow::Result<bool> {
        match self {
            Self::Output => program::print(labels).map(|()| true),
            Self::File(file) => file
                .publish(labels)
                .with_context(|| format!("cannot write `{}`", file.path().display())),
            Self::NodeFeature { feature, owner } => {
                find_owner(feature, owner).await?;
                let published = feature.publish(labels).await.map_err(without_discovery);
                published.with_context(|| format!("cannot publish the NodeFeature object `{}`", feature.name()))
            }
            Self::Node { labels: node, .. } => {
                let published = node.publish(labels).await.map_err(words);
                published.context("cannot label the node")
            }
        }
    }

    /// Makes the labels of PCI devices be there, where they are asked for; what became of them.
    pub(super) async fn publish_pci(&self, labels: &Labels) -> anyhow::Result<Option<Pci>> {
        match self {
            Self::Node {
                labels: node,
                pci: true,
            } => {
                let published = node.publish_pci(labels).await.map_err(words);
                published
                    .map(Some)
                    .context("cannot label the node with its PCI devices")
            }
            _ => Ok(None),
        }
    }

    pub(super) async fn withdraw(&self) -> anyhow::Result<()> {
        match self {
            Self::Output => Ok(()),
            Self::File(file) => file
                .withdraw()
                .with_context(|| format!("cannot remove `{}`", file.path().display())),
            Self::NodeFeature { feature, .. } => {
                let withdrawn = feature.withdraw().await.map_err(words);
                withdrawn.with_context(|| format!("cannot remove the NodeFeature object `{}`", feature.name()))
            }
            Self::Node { labels, .. } => {
                let withdrawn = labels.withdraw().await.map_err(words);
                withdrawn.context("cannot take the labels off the node")
            }
        }
    }

    /// In words, for the log.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Output => "standard output".to_owned(),
            Self::File(file) => format!("`{}`", file.path().display()),
            Self::NodeFeature { feature, .. } => format!("the NodeFeature object `{}`", feature.name()),
            Self::Node { .. } => "the node".to_owned(),
        }
    }
}

/// Asks for the owner until the server says who it is, or that it will not: then there is none, as with the vendor's program.
async fn find_owner(feature: &mut NodeFeature, owner: &mut Option<Owner>) -> anyhow::Result<()> {
    let Some(wanted) = owner.as_ref() else { return Ok(()) };
    match feature.set_owner(wanted).await {
        Ok(()) => {}
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => {
            tracing::warn!("the NodeFeature object has no owner: {}", line(&status.message));
        }
        Err(error) => return Err(words(error)).context("cannot find the owner of the NodeFeature object"),
    }
    *owner = None;
    Ok(())
}

/// What the API server answered, without how the client keeps it.
fn words(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow!("{} ({})", line(&status.message), status.code),
        error => error.into(),
    }
}

/// The same, and what to do where there is no such kind of object.
fn without_discovery(error: kube::Error) -> anyhow::Error {
    let unknown =
        matches!(&error, kube::Error::Api(status) if status.code == 404 && !status.message.starts_with("namespaces "));
    let error = words(error);
    if unknown {
        anyhow!(
            "{error}; without Node Feature Discovery there are no such objects, and --node-labels labels the node itself"
        )
    } else {
        error
    }
}

/// A message as one line that is not too long: what answers may be a proxy, with a page.
fn line(message: &str) -> String {
    const LONGEST: usize = 400;
    let words: Vec<_> = message.split_whitespace().collect();
    let mut line = words.join(" ");
    if let Some((end, _)) = line.char_indices().nth(LONGEST) {
        line.truncate(end);
        line.push('…');
    }
    line
}

async fn client(program: &FeatureDiscovery) -> anyhow::Result<Client> {
    let arguments = &program.cluster;
    let mut config = cluster::config(arguments.kubeconfig.as_deref()).await?;
    // An API server that is busy is a state to speak of: the client's own retries are silent for minutes.
    config.default_retry = false;
    let period = Duration::from_secs_f64(f64::from(arguments.kube_api_burst) / arguments.kube_api_qps);
    let limit = RateLimitLayer::new(u64::from(arguments.kube_api_burst), period);
    let builder = ClientBuilder::try_from(config).context("cannot set up the way to the API server")?;
    Ok(builder.with_layer(&limit).build())
}
