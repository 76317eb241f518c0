//! Round after round.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
use gpu_labels::{
    cluster::Pci,
    gpu_core::{self, Inventory},
    gpu_sharing::config::Interval,
    labels, pci_labels,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::{FeatureDiscovery, hardware::Hardware, target::Target};
use crate::{health, program, settings::Settings};

/// How often the configuration file is looked at.
const CONFIG_INTERVAL: Duration = Duration::from_secs(1);
/// The wait after a round that failed; it doubles up to the interval or a minute, whichever is shorter.
const BACK_OFF: Duration = Duration::from_secs(1);

/// Labels the node until it is told to end.
pub(super) async fn run(arguments: &FeatureDiscovery, settings: Settings) -> anyhow::Result<()> {
    if settings.config.gfd.oneshot {
        let mut labeller = Labeller::new(arguments, settings, None).await?;
        return labeller.round().await;
    }
    let mut end = End::new()?;
    let mut hang_up = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
    let (changes, mut changed) = mpsc::unbounded_channel();
    let mut labeller = Labeller::new(arguments, settings, Some(changes)).await?;
    if let Some(address) = arguments.ours.listen {
        // Always well: its labels stay while it fails, so that being started anew would help nobody.
        let state = labeller.state.subscribe();
        let answer = move |path: &str| (path == "/healthz").then(|| Ok(state.borrow().clone()));
        health::serve(address, answer).await?;
    }
    let mut back_off = BACK_OFF;
    let mut first = true;
    loop {
        let round = tokio::select! {
            round = labeller.round() => round,
            () = end.wait() => break,
        };
        let interval = match labeller.settings.config.gfd.sleep_interval {
            Interval::Every(time) => time,
            Interval::Infinite => Duration::MAX,
        };
        let pause = match round {
            Ok(()) => {
                back_off = BACK_OFF;
                interval
            }
            Err(error) => {
                if first && labeller.fails_at_start(&error) {
                    return Err(error);
                }
                labeller.say(Level::Warning, &program::chain(&error));
                let pause = back_off.min(interval);
                back_off = back_off.saturating_mul(2).min(Duration::from_mins(1));
                pause
            }
        };
        first = false;
        let until = Instant::now().checked_add(pause);
        loop {
            let reload = tokio::select! {
                () = end.wait() => return labeller.end().await,
                _ = hang_up.recv() => true,
                Some(()) = changed.recv() => {
                    while changed.try_recv().is_ok() {} // one round for all that happened
                    break;
                }
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => break,
                () = tokio::time::sleep(CONFIG_INTERVAL) => labeller.config_changed(),
            };
            if reload {
                labeller.reload().await;
                break;
            }
        }
    }
    labeller.end().await
}

struct Labeller<'a> {
    arguments: &'a FeatureDiscovery,
    settings: Settings,
    hardware: Hardware,
    target: Target,
    timestamp: Option<u64>,
    /// The last thing said, so that it is said once.
    state: watch::Sender<String>,
    remarks: Vec<String>,
    pci: Option<Pci>,
    /// The text of a configuration file that was refused, so that it is refused once.
    refused: Option<String>,
}

#[derive(Debug, Clone, Copy)]
enum Level {
    Information,
    Warning,
}

/// The driver cannot be asked.
#[derive(Debug, thiserror::Error)]
#[error("the GPUs of this node cannot be read")]
struct NoDriver(#[source] gpu_core::Error);

impl<'a> Labeller<'a> {
    async fn new(
        arguments: &'a FeatureDiscovery,
        settings: Settings,
        changes: Option<mpsc::UnboundedSender<()>>,
    ) -> anyhow::Result<Self> {
        let target = Target::new(arguments, &settings.config).await?;
        let search = arguments.library_search(&settings.config);
        let mut labeller = Self {
            arguments,
            timestamp: timestamp(&settings),
            settings,
            hardware: Hardware::new(search, &arguments.ours.host_root, changes),
            target,
            state: watch::channel("starting".to_owned()).0,
            remarks: Vec::new(),
            pci: None,
            refused: None,
        };
        labeller.say_settings();
        Ok(labeller)
    }

    /// Reads the node and publishes its labels. Whatever fails leaves the labels that there are.
    async fn round(&mut self) -> anyhow::Result<()> {
        let config = &self.settings.config;
        let root = &self.arguments.ours.host_root;
        let machine_type_file = config.gfd.machine_type_file.as_ref().map(|path| beneath(root, path));
        let (mut node, problems) = self.hardware.node(machine_type_file).await;
        node.timestamp = self.timestamp;
        let mut remarks: Vec<String> = problems.iter().map(ToString::to_string).collect();

        let pci = self.target.publish_pci(&pci_labels(&node)).await?;
        if pci == Some(Pci::Others) && self.pci != pci {
            tracing::info!("the labels of PCI devices are Node Feature Discovery's on this node");
        }
        self.pci = pci;

        let inventory = match self.hardware.inventory().await {
            Ok(inventory) => inventory,
            // One round of a program that may not fail says what can be said without a driver.
            Err(error) if config.gfd.oneshot && !config.fail_on_init_error => {
                remarks.push(format!("the GPUs of this node cannot be read: {error}"));
                Inventory::default()
            }
            Err(error) => return Err(NoDriver(error).into()),
        };
        remarks.extend(inventory.problems.iter().map(ToString::to_string));
        let (labels, noted) = labels(&inventory, &node, config, self.arguments.label_options())?;
        remarks.extend(noted.iter().map(ToString::to_string));
        self.remark(remarks);
        let written = self.target.publish(&labels).await?;
        let (count, target) = (labels.len(), self.target.name());
        self.say(Level::Information, &format!("{count} labels are in {target}"));
        if written {
            tracing::debug!("labels written to {target}");
        }
        Ok(())
    }

    /// A node without a driver, at the start of a program that was not told to wait for one; and what will not get better.
    fn fails_at_start(&self, error: &anyhow::Error) -> bool {
        error.is::<NoDriver>() && self.settings.config.fail_on_init_error
    }

    /// Says each remark when it is new.
    fn remark(&mut self, remarks: Vec<String>) {
        for remark in remarks.iter().filter(|remark| !self.remarks.contains(remark)) {
            tracing::warn!("{remark}");
        }
        self.remarks = remarks;
    }

    fn say(&mut self, level: Level, state: &str) {
        if *self.state.borrow() != state {
            match level {
                Level::Information => tracing::info!("{state}"),
                Level::Warning => tracing::warn!("{state}"),
            }
            self.state.send_replace(state.to_owned());
        }
    }

    fn say_settings(&mut self) {
        for warning in &self.settings.warnings {
            tracing::warn!("{warning}");
        }
        tracing::debug!("running with {:?}", self.settings.config);
    }

    /// Whether the configuration file says something else than what is in force, and than what was refused.
    fn config_changed(&self) -> bool {
        let Ok(text) = self.arguments.config_text() else {
            return false; // a ConfigMap that is being replaced
        };
        text != self.settings.text && text != self.refused
    }

    /// Takes over new settings, or keeps those in force where the new ones cannot be used.
    async fn reload(&mut self) {
        let text = self.arguments.config_text().ok().flatten();
        let renewed = async {
            let settings = self.arguments.settings()?;
            let target = Target::new(self.arguments, &settings.config).await?;
            anyhow::Ok((settings, target))
        };
        match renewed.await {
            Ok((settings, target)) => {
                tracing::info!("the configuration is read anew");
                self.timestamp = timestamp(&settings);
                self.settings = settings;
                self.target = target;
                self.refused = None;
                self.say_settings();
            }
            Err(error) => {
                let error = program::chain(&error);
                tracing::warn!("the configuration in force stays: {error}");
                self.refused = text;
            }
        }
    }

    async fn end(&mut self) -> anyhow::Result<()> {
        if !self.arguments.ours.remove_on_exit {
            tracing::info!("ending; the labels stay");
            return Ok(());
        }
        tracing::info!("ending; the labels are taken back");
        // Within what a kubelet gives a pod to end, and our own promise.
        let limit = Duration::from_millis(1500);
        let withdrawn = tokio::time::timeout(limit, self.target.withdraw()).await;
        withdrawn.context("the labels could not be taken back in time")?
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

struct End {
    terminate: Signal,
    interrupt: Signal,
}

impl End {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
