//! From the configuration and the GPUs to daemons that serve, and after what changes.

use std::{
    collections::BTreeMap,
    error::Error,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context;
use gpu_core::{ComputeMode, GpuUuid};
use gpu_sharing::{
    config::{Config, ResourceName},
    mps::{
        Agreement, Plan, SharedResource,
        daemon::{ComputeModes, Daemons, Event, Settings as DaemonSettings},
        plan,
    },
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

use super::{ComputeModeChoice, MpsDaemon, node::Node};
use crate::{
    health,
    last_read::LastRead,
    metrics::{self, Kind, Metric},
    names::metrics as names,
    program,
    settings::Settings,
    stop::StopSignals,
};

/// How often the configuration file is looked at.
const CONFIG_INTERVAL: Duration = Duration::from_secs(1);
/// The wait before a node that cannot be read is read again; it doubles up to the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What probes and metrics tell.
#[derive(Debug)]
struct Told {
    /// Which resources serve; `Err` with why nothing is known yet.
    serving: Result<BTreeMap<ResourceName, bool>, String>,
    /// How often each failed and was started again.
    failures: BTreeMap<ResourceName, u64>,
    /// Why the newest configuration file is not in force, and the one before it is.
    refused: Option<String>,
    /// Why what is configured does not run on this node.
    unplanned: Option<String>,
    /// Why the node cannot be read, or daemons not be run.
    failed: Option<String>,
    /// How much of the configuration is about what the node does not have, or cannot.
    remarks: usize,
}

type Shared = Arc<Mutex<Told>>;

/// Runs the daemons until a signal ends them.
pub(super) async fn run(arguments: &MpsDaemon, settings: Settings, control: PathBuf) -> anyhow::Result<()> {
    let mut signals = StopSignals::new()?;
    let mut hang_up = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
    let told: Shared = Arc::new(Mutex::new(Told {
        serving: Err("starting".to_owned()),
        failures: BTreeMap::new(),
        refused: None,
        unplanned: None,
        failed: None,
        remarks: 0,
    }));
    if let Some(address) = arguments.daemon.listen {
        health::serve(address, probes(Arc::clone(&told))).await?;
    }
    let (changes, mut changed) = mpsc::unbounded_channel();
    let open = || Node::open(arguments.library_search(), arguments.host_root.clone(), changes.clone());
    let mut pause = PAUSE;
    let mut said = String::new();
    let (node, inventory) = loop {
        let error = tokio::select! {
            opened = open() => match opened {
                Ok(opened) => break opened,
                Err(error) => program::chain(&error),
            },
            signal = signals.recv() => {
                tracing::info!("{signal}: ending");
                return Ok(());
            }
        };
        if error != said {
            tracing::warn!("the GPUs of this node cannot be read: {error}; trying again");
            let mut told = lock(&told);
            told.serving = Err(error.clone());
            told.failed = Some(error.clone());
            said = error;
        }
        tokio::select! {
            () = sleep(pause) => {}
            signal = signals.recv() => {
                tracing::info!("{signal}: ending");
                return Ok(());
            }
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    };
    drop(inventory); // read again below, as after each change
    lock(&told).failed = None;
    let mut keeper = Keeper::new(arguments, settings, node, control, told)?;
    let mut retry = Some(Instant::now());
    loop {
        tokio::select! {
            signal = signals.recv() => {
                tracing::info!("{signal}: ending");
                break;
            }
            _ = hang_up.recv() => {
                keeper.reload();
                retry = Some(Instant::now());
            }
            Some(()) = changed.recv() => {
                while changed.try_recv().is_ok() {} // one look for all that happened
                retry = Some(Instant::now());
            }
            () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {
                // Clients of daemons that end are waited for, and the driver may hang.
                let again = tokio::select! {
                    again = keeper.settle() => again,
                    signal = signals.recv() => {
                        tracing::info!("{signal}: ending");
                        break;
                    }
                };
                retry = again.then(|| Instant::now() + LONGEST_PAUSE);
            }
            () = sleep(CONFIG_INTERVAL) => {
                keeper.publish();
                if keeper.config_changed() {
                    keeper.reload();
                    retry = Some(Instant::now());
                }
            }
        }
    }
    Ok(keeper.daemons.stop().await?)
}

/// `/healthz` is well as long as the program runs; `/readyz` while every daemon serves that the newest configuration wants.
fn probes(told: Shared) -> impl Fn(&str) -> Option<health::Answer> {
    move |path| match path {
        "/healthz" => Some(Ok("ok".to_owned())),
        "/readyz" => Some(lock(&told).ready().map(|()| "ok".to_owned())),
        health::METRICS => Some(Ok(metrics::text(lock(&told).metrics()))),
        _ => None,
    }
}

impl Told {
    fn ready(&self) -> Result<(), String> {
        let serving = self.serving.as_ref().map_err(Clone::clone)?;
        match serving.iter().find(|(_, serves)| !**serves) {
            Some((resource, _)) => Err(format!("the MPS daemon of {resource} does not serve")),
            None => match self.problems().next() {
                Some(problem) => Err(problem.clone()),
                None => Ok(()),
            },
        }
    }

    fn problems(&self) -> impl Iterator<Item = &String> {
        self.refused.iter().chain(&self.unplanned).chain(&self.failed)
    }

    fn metrics(&self) -> Vec<Metric> {
        let label = |resource: &ResourceName| vec![("resource", resource.to_string())];
        let serving = self.serving.iter().flatten();
        vec![
            Metric {
                name: names::MPS_SERVES,
                help: "Whether the MPS daemon of a resource serves",
                kind: Kind::Gauge,
                samples: serving
                    .map(|(resource, serves)| (label(resource), u64::from(*serves)))
                    .collect(),
            },
            Metric {
                name: names::MPS_FAILURES,
                help: "How often the MPS daemon of a resource failed and was started again",
                kind: Kind::Counter,
                samples: self
                    .failures
                    .iter()
                    .map(|(resource, count)| (label(resource), *count))
                    .collect(),
            },
            Metric {
                name: names::MPS_CONFIG_REFUSED,
                help: "Whether the newest configuration is refused and the one before it in force",
                kind: Kind::Gauge,
                samples: vec![(
                    Vec::new(),
                    u64::from(self.refused.is_some() || self.unplanned.is_some()),
                )],
            },
            Metric {
                name: names::MPS_PROBLEMS,
                help: "How many things keep daemons from running as configured; the log names them",
                kind: Kind::Gauge,
                samples: vec![(Vec::new(), (self.problems().count() + self.remarks) as u64)],
            },
        ]
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Keeper<'a> {
    arguments: &'a MpsDaemon,
    settings: Settings,
    node: Node,
    daemons: Daemons,
    told: Shared,
    /// What runs, and the configuration that wanted it.
    planned: Option<(Plan, Config)>,
    file: LastRead,
    said: String,
}

impl<'a> Keeper<'a> {
    fn new(
        arguments: &'a MpsDaemon,
        settings: Settings,
        node: Node,
        control: PathBuf,
        told: Shared,
    ) -> anyhow::Result<Self> {
        let root = arguments.root();
        let compute_modes = (arguments.daemon.compute_mode == ComputeModeChoice::ExclusiveProcess).then(|| {
            let library = Arc::clone(node.library());
            ComputeModes::new(
                &root,
                Arc::new(
                    move |gpu: &GpuUuid, mode: ComputeMode| -> Result<ComputeMode, Box<dyn Error + Send + Sync>> {
                        Ok(library.set_compute_mode(gpu, mode)?)
                    },
                ),
            )
        });
        let daemons = Daemons::new(DaemonSettings {
            root,
            control,
            compute_modes,
            selinux: arguments.host_root.join("sys/fs/selinux"),
            tell: Arc::new({
                let told = Arc::clone(&told);
                move |event: Event| {
                    if let Event::Failed { resource, .. } = &event {
                        *lock(&told).failures.entry(resource.clone()).or_default() += 1;
                    }
                    log(event);
                }
            }),
        })?;
        let keeper = Self {
            arguments,
            file: LastRead::new(settings.text.clone()),
            settings,
            node,
            daemons,
            told,
            planned: None,
            said: String::new(),
        };
        keeper.say_settings();
        Ok(keeper)
    }

    /// Brings what runs to what the configuration wants of the GPUs that there are. What cannot be planned leaves it as it is. Whether
    /// it is to be tried again.
    async fn settle(&mut self) -> bool {
        let (unplanned, failed) = match self.apply().await {
            Ok(unplanned) => (unplanned, None),
            Err(error) => {
                // What was said of the plan may still be so.
                let unplanned = lock(&self.told).unplanned.clone();
                (unplanned, Some(program::chain(&error)))
            }
        };
        if let Some(reason) = failed.as_ref().or(unplanned.as_ref()) {
            self.say(reason);
        }
        let again = unplanned.is_some() || failed.is_some();
        let mut told = lock(&self.told);
        (told.unplanned, told.failed) = (unplanned, failed);
        again
    }

    /// Why what is configured cannot be planned, if it cannot.
    async fn apply(&mut self) -> anyhow::Result<Option<String>> {
        let inventory = self
            .node
            .inventory()
            .await
            .context("the GPUs of this node cannot be read")?;
        let plan = match plan(&inventory, &self.settings.config).context("what runs stays as it is") {
            Ok(plan) => plan,
            Err(error) => return Ok(Some(program::chain(&error))),
        };
        lock(&self.told).remarks = plan.remarks.len();
        if !self.runs(&plan) {
            for remark in &plan.remarks {
                tracing::warn!("{remark}");
            }
            for problem in &inventory.problems {
                tracing::warn!("{problem}");
            }
            if plan.resources.is_empty() {
                tracing::info!("no resource is shared by MPS: nothing to run");
            }
            self.daemons.apply(&plan).await?;
            self.planned = Some((plan, self.settings.config.clone()));
        }
        self.said = String::new();
        self.publish();
        Ok(None)
    }

    /// Whether that is what runs. A GPU that is lost changes nothing for the others: their clients would be ended for it.
    fn runs(&self, plan: &Plan) -> bool {
        let Some((running, config)) = &self.planned else {
            return false;
        };
        let served = |wanted: &SharedResource| {
            let mut running = running.resources.iter().cloned();
            running.any(|running| Agreement::Serves(running).covers(wanted))
        };
        let fewer = running.resources.len() == plan.resources.len() && plan.resources.iter().all(served);
        running == plan || *config == self.settings.config && fewer
    }

    /// Tells probes.
    fn publish(&self) {
        if self.planned.is_some() {
            lock(&self.told).serving = Ok(self.daemons.serving());
        }
    }

    fn config_changed(&mut self) -> bool {
        self.file.look(self.arguments.config_text())
    }

    /// Takes the configuration file over, or keeps what is in force and says why.
    fn reload(&mut self) {
        self.file.look(self.arguments.config_text());
        match self.arguments.settings() {
            Ok(settings) => {
                tracing::info!("the configuration is read anew");
                self.settings = settings;
                self.say_settings();
                lock(&self.told).refused = None;
            }
            Err(error) => {
                let reason = format!("the configuration in force stays: {}", program::chain(&error));
                tracing::error!("{reason}");
                lock(&self.told).refused = Some(reason);
            }
        }
    }

    fn say(&mut self, error: &str) {
        if self.said != error {
            tracing::error!("{error}");
            error.clone_into(&mut self.said);
        }
        if self.planned.is_none() {
            lock(&self.told).serving = Err(error.to_owned());
        }
    }

    fn say_settings(&self) {
        for warning in &self.settings.warnings {
            tracing::warn!("{warning}");
        }
        tracing::debug!("running with {:?}", self.settings.config);
    }
}

fn log(event: Event) {
    match event {
        Event::Serves { resource } => tracing::info!(%resource, "the MPS daemon serves"),
        Event::Log { resource, line } => tracing::info!(%resource, "{line}"),
        Event::Failed { resource, error, pause } => tracing::error!(
            %resource,
            "{}; starting the MPS daemon again in {} s",
            program::chain(&error.into()),
            pause.as_secs()
        ),
        Event::Stopped { resource } => tracing::info!(%resource, "the MPS daemon was stopped"),
        Event::Untidy { resource, error } => tracing::warn!(%resource, "{}", program::chain(&error.into())),
        _ => {}
    }
}
