//! From the configuration and the GPUs to what runs.

use std::{error::Error, path::PathBuf, sync::Arc};

use anyhow::Context;
use gpu_core::{ComputeMode, GpuUuid};
use gpu_sharing::{
    config::Config,
    mps::{
        Agreement, Plan, SharedResource,
        daemon::{ComputeModes, Daemons, Event, Settings as DaemonSettings},
        plan,
    },
};

use super::{
    ComputeModeChoice, MpsDaemon,
    node::Node,
    told::{Shared, lock},
};
use crate::{last_read::LastRead, program, settings::Settings};

/// The daemons, and what they are to be.
pub(super) struct Keeper<'a> {
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
    pub(super) fn new(
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
    pub(super) async fn settle(&mut self) -> bool {
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
    pub(super) fn publish(&self) {
        if self.planned.is_some() {
            lock(&self.told).serving = Ok(self.daemons.serving());
        }
    }

    pub(super) fn config_changed(&mut self) -> bool {
        self.file.look(self.arguments.config_text())
    }

    /// Takes the configuration file over, or keeps what is in force and says why.
    pub(super) fn reload(&mut self) {
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

    /// Ends the daemons, and gives back compute modes.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        Ok(self.daemons.stop().await?)
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
