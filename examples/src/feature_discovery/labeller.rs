//! One round: read the node, publish its labels, say what is new.

use std::{
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::bail;
use gpu_labels::{
    LabelValue, Labels, Node, Options,
    cluster::Pci,
    gpu_core::{self, Inventory, Problem, ProblemKind},
    gpu_sharing::config::Interval,
    labels,
    names::DEGRADED,
    pci_labels,
};
use tokio::sync::{mpsc, watch};

use super::{arguments::FeatureDiscovery, hardware::Hardware, target::Target};
use crate::{last_read::LastRead, program, settings::Settings};

/// What labels a node, and what it has said so far.
pub(super) struct Labeller<'a> {
    arguments: &'a FeatureDiscovery,
    settings: Settings,
    hardware: Hardware,
    target: Target,
    timestamp: Option<u64>,
    /// What was read last of all that is around the GPUs.
    node: Node,
    /// The last labels that speak of GPUs.
    labels: Option<Labels>,
    /// The last thing said, so that it is said once.
    state: watch::Sender<String>,
    remarks: Vec<String>,
    pci: Option<Pci>,
    file: LastRead,
}

/// The driver cannot be asked.
#[derive(Debug, thiserror::Error)]
#[error("the GPUs of this node cannot be read: {0}")]
struct NoDriver(String);

impl<'a> Labeller<'a> {
    /// `changes` is where a change of the node is told; nowhere for a program that ends after one round.
    pub(super) async fn new(
        arguments: &'a FeatureDiscovery,
        settings: Settings,
        changes: Option<mpsc::UnboundedSender<()>>,
    ) -> anyhow::Result<Self> {
        let target = Target::new(arguments, &settings.config).await?;
        let search = arguments.library_search(&settings.config);
        let labeller = Self {
            arguments,
            timestamp: timestamp(&settings),
            file: LastRead::new(settings.text.clone()),
            settings,
            hardware: Hardware::new(search, &arguments.ours.host_root, changes),
            target,
            node: Node::default(),
            labels: None,
            state: watch::channel("starting".to_owned()).0,
            remarks: Vec::new(),
            pci: None,
        };
        labeller.say_settings();
        Ok(labeller)
    }

    /// How it goes, in words.
    pub(super) fn state(&self) -> watch::Receiver<String> {
        self.state.subscribe()
    }

    /// The time between two rounds.
    pub(super) fn interval(&self) -> Interval {
        self.settings.config.gfd.sleep_interval
    }

    /// Whether the next round is to be the last.
    pub(super) fn is_one_shot(&self) -> bool {
        self.settings.config.gfd.oneshot
    }

    /// Reads the node and publishes its labels. Whatever fails leaves the labels that there are.
    pub(super) async fn round(&mut self) -> anyhow::Result<()> {
        let remarks = self.read_node().await;
        // Neither keeps the other from being tried.
        let pci = self.publish_pci().await;
        let count = self.publish_gpus(remarks).await?;
        pci?;
        if self.is_new(&format!("{count} labels are in {}", self.target.name())) {
            tracing::info!("{}", *self.state.borrow());
        }
        Ok(())
    }

    /// Reads what is around the GPUs; what of it cannot be read.
    async fn read_node(&mut self) -> Vec<String> {
        let root = &self.arguments.ours.host_root;
        let machine_type_file = self.settings.config.gfd.machine_type_file.as_ref();
        let machine_type_file = machine_type_file.map(|path| beneath(root, path));
        let (node, problems) = self.hardware.node(machine_type_file).await;
        self.node = node.or(&self.node);
        self.node.timestamp = self.timestamp;
        problems
    }

    async fn publish_pci(&mut self) -> anyhow::Result<()> {
        if self.node.pci.is_none() {
            return Ok(()); // no bus was seen, and none is no reason to say that there are no GPUs
        }
        let pci = self.target.publish_pci(&pci_labels(&self.node)).await?;
        if pci == Some(Pci::Others) && self.pci != pci {
            tracing::info!("the labels of PCI devices are Node Feature Discovery's on this node");
        }
        self.pci = pci;
        Ok(())
    }

    /// How many labels there are.
    async fn publish_gpus(&mut self, mut remarks: Vec<String>) -> anyhow::Result<usize> {
        let config = &self.settings.config;
        let inventory = match self.hardware.inventory().await {
            Ok(inventory) => inventory,
            // One round of a program that may not fail says what can be said without a driver.
            Err(error) if config.gfd.oneshot && !config.fail_on_init_error => {
                remarks.push(NoDriver(steady(error)).to_string());
                Inventory::default()
            }
            Err(error) => return Err(NoDriver(steady(error)).into()),
        };
        remarks.extend(inventory.problems.iter().map(steady_problem));
        let options = Options {
            per_model: self.arguments.ours.per_model_labels,
        };
        let (mut labels, noted) = labels(&inventory, &self.node, config, options)?;
        remarks.extend(noted.iter().map(ToString::to_string));
        self.remark(remarks);
        if !inventory.gpus.is_empty() {
            self.labels = Some(labels.clone());
        } else if labels.get(DEGRADED).is_some() {
            labels = self.of_lost_gpus()?;
        }
        if self.target.publish(&labels).await? {
            tracing::debug!("labels written to {}", self.target.name());
        }
        Ok(labels.len())
    }

    /// The labels of a node none of whose GPUs can be read: those of the GPUs that it had.
    fn of_lost_gpus(&self) -> anyhow::Result<Labels> {
        let Some(mut labels) = self.labels.clone() else {
            bail!("none of the GPUs of this node can be read, and its labels stay as they are");
        };
        labels.insert(DEGRADED.parse()?, LabelValue::from(true));
        Ok(labels)
    }

    /// Says why a round failed, where that is new.
    ///
    /// # Errors
    /// Where that ends the program: the driver was never there, and the program was not told to wait for one.
    pub(super) fn failed(&mut self, error: anyhow::Error) -> anyhow::Result<()> {
        let starting = !self.hardware.was_read() && self.settings.config.fail_on_init_error;
        if starting && error.is::<NoDriver>() {
            return Err(error);
        }
        if self.is_new(&program::chain(&error)) {
            tracing::warn!("{}", *self.state.borrow());
        }
        Ok(())
    }

    /// Says each remark when it is new.
    fn remark(&mut self, remarks: Vec<String>) {
        for remark in remarks.iter().filter(|remark| !self.remarks.contains(remark)) {
            tracing::warn!("{remark}");
        }
        self.remarks = remarks;
    }

    fn is_new(&self, state: &str) -> bool {
        self.state.send_if_modified(|last| {
            let new = last != state;
            if new {
                state.clone_into(last);
            }
            new
        })
    }

    fn say_settings(&self) {
        for warning in &self.settings.warnings {
            tracing::warn!("{warning}");
        }
        tracing::debug!("running with {:?}", self.settings.config);
    }

    /// Whether the configuration file is another than it was read last.
    pub(super) fn config_changed(&mut self) -> bool {
        self.file.look(self.arguments.config_text())
    }

    /// Takes over new settings, or keeps those in force where the new ones cannot be used.
    pub(super) async fn reload(&mut self) {
        self.file.look(self.arguments.config_text());
        let renewed = async {
            let settings = self.arguments.settings()?;
            let target = Target::new(self.arguments, &settings.config).await?;
            anyhow::Ok((settings, target))
        };
        match renewed.await {
            Ok((settings, target)) => {
                tracing::info!("the configuration is read anew");
                self.timestamp = timestamp(&settings);
                self.hardware.search(self.arguments.library_search(&settings.config));
                self.settings = settings;
                self.target = target;
                self.node = Node::default(); // the machine's type may be another file's
                self.say_settings();
            }
            Err(error) => {
                let error = program::chain(&error);
                tracing::warn!("the configuration in force stays: {error}");
            }
        }
    }

    /// Takes the labels back.
    pub(super) async fn withdraw(&self) -> anyhow::Result<()> {
        self.target.withdraw().await
    }
}

/// An error in words that are the same from round to round, so that it is said once.
fn steady(error: gpu_core::Error) -> String {
    match error {
        gpu_core::Error::Hung { call, .. } => format!("`{call}` does not return"),
        error => program::chain(&error.into()),
    }
}

/// The same for what is wrong with one GPU.
fn steady_problem(problem: &Problem) -> String {
    match problem.kind {
        ProblemKind::Hung => Problem {
            message: "does not return".to_owned(),
            ..problem.clone()
        }
        .to_string(),
        _ => problem.to_string(),
    }
}

/// The time of the start, or of the last reload: one that changed with every round would cost a write each.
fn timestamp(settings: &Settings) -> Option<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    (!settings.config.gfd.no_timestamp).then_some(now.as_secs())
}

/// A path of the host, seen from here.
fn beneath(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}
