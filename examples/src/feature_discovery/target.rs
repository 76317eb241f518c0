//! Where labels go.

use std::time::Duration;

use anyhow::{Context, bail};
use gpu_labels::{
    FeatureFile, Labels,
    cluster::{NodeFeature, NodeLabels, Owner, Pci},
    gpu_sharing::config::Config,
    kube::{Client, client::ClientBuilder},
};
use tower::limit::RateLimitLayer;

use super::{FeatureDiscovery, OwnerKind};
use crate::{cluster, program};

/// Where labels go.
#[derive(Debug)]
pub(super) enum Target {
    Output,
    File(FeatureFile),
    NodeFeature(NodeFeature),
    Node { labels: NodeLabels, pci: bool },
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
        if node.is_empty() {
            bail!("the name of this node is not known: set --node-name or NODE_NAME");
        }
        let client = client(program).await?;
        if program.ours.node_labels {
            let pci = program.ours.pci_labels;
            return Ok(Self::Node {
                labels: NodeLabels::new(client, node),
                pci,
            });
        }
        let feature = NodeFeature::new(client, &program.cluster.namespace, node);
        Ok(Self::NodeFeature(owned(program, feature).await))
    }

    /// Makes the labels be there; whether that took a write.
    pub(super) async fn publish(&self, labels: &Labels) -> anyhow::Result<bool> {
        match self {
            Self::Output => program::print(labels).map(|()| true),
            Self::File(file) => file
                .publish(labels)
                .with_context(|| format!("cannot write `{}`", file.path().display())),
            Self::NodeFeature(feature) => {
                let published = feature.publish(labels).await;
                published.with_context(|| format!("cannot publish the NodeFeature object `{}`", feature.name()))
            }
            Self::Node { labels: node, .. } => node.publish(labels).await.context("cannot label the node"),
        }
    }

    /// Makes the labels of PCI devices be there, where they are asked for; what became of them.
    pub(super) async fn publish_pci(&self, labels: &Labels) -> anyhow::Result<Option<Pci>> {
        match self {
            Self::Node {
                labels: node,
                pci: true,
            } => {
                let published = node.publish_pci(labels).await;
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
            Self::NodeFeature(feature) => {
                let withdrawn = feature.withdraw().await;
                withdrawn.with_context(|| format!("cannot remove the NodeFeature object `{}`", feature.name()))
            }
            Self::Node { labels, .. } => labels.withdraw().await.context("cannot take the labels off the node"),
        }
    }

    /// In words, for the log.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Output => "standard output".to_owned(),
            Self::File(file) => format!("`{}`", file.path().display()),
            Self::NodeFeature(feature) => format!("the NodeFeature object `{}`", feature.name()),
            Self::Node { .. } => "the node".to_owned(),
        }
    }
}

/// An owner that cannot be found is none, as with the vendor's program.
async fn owned(program: &FeatureDiscovery, feature: NodeFeature) -> NodeFeature {
    let pod = &program.cluster.pod_name;
    let owner = match program.ours.node_feature_owner {
        OwnerKind::Workload if !pod.is_empty() => Owner::Workload { pod: pod.clone() },
        OwnerKind::Node => Owner::Node,
        OwnerKind::Workload | OwnerKind::None => return feature,
    };
    match feature.owned_by(&owner).await {
        Ok(feature) => feature,
        Err((feature, error)) => {
            tracing::warn!("the NodeFeature object has no owner: {error}");
            feature
        }
    }
}

async fn client(program: &FeatureDiscovery) -> anyhow::Result<Client> {
    let arguments = &program.cluster;
    let config = cluster::config(arguments.kubeconfig.as_deref()).await?;
    let period = Duration::from_secs_f64(f64::from(arguments.kube_api_burst) / arguments.kube_api_qps);
    let limit = RateLimitLayer::new(u64::from(arguments.kube_api_burst), period);
    let builder = ClientBuilder::try_from(config).context("cannot set up the way to the API server")?;
    Ok(builder.with_layer(&limit).build())
}
