//! `config-manager`: gives the programs of a node the configuration file that the node's label chooses, in the place of the
//! vendor's program of that name; also `gpu-device-plugin config-manager`.

use std::{collections::BTreeSet, ffi::OsString, path::PathBuf, pin::pin, process::ExitCode, time::Duration};

use anyhow::{Context, bail};
use clap::{Args, Parser};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::time::sleep;

use self::{
    choice::{Choice, Fallback, NoChoice},
    link::Files,
    process::Receiver,
};
use crate::{
    cluster, executor,
    logging::Logging,
    names::{self, config_manager as env},
    program,
    stop::StopSignals,
    vendor,
};

mod choice;
#[cfg(all(feature = "device-plugin", feature = "node-events"))]
mod follow;
mod link;
mod process;

#[cfg(all(feature = "device-plugin", feature = "node-events"))]
pub(crate) use self::follow::follow;

/// Gives the programs of this node the configuration file that its label chooses.
///
/// A link is made to one of the files of a folder, as a rule a mounted `ConfigMap`, and a program is signalled that reads it. The
/// label names the file; without a label, the default or the fallbacks do. Flags and environment variables are those of the
/// vendor's config-manager v0.20.
#[derive(Debug, Parser)]
#[command(name = "config-manager", version)]
struct ConfigManager {
    /// Choose once and end
    #[arg(long, env = env::ONESHOT, value_name = "BOOL", default_value = "false", value_parser = vendor::parse_bool,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    oneshot: bool,

    /// The file that says where the API server is; in a pod it is known without
    #[arg(long, env = names::KUBECONFIG, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    /// The name of this node
    #[arg(long, env = names::NODE_NAME, value_name = "NAME")]
    node_name: String,

    /// The folder of the files
    #[arg(long, env = env::CONFIG_FILE_SRCDIR, value_name = "PATH")]
    config_file_srcdir: PathBuf,

    /// The link that is made
    #[arg(long, env = env::CONFIG_FILE_DST, value_name = "PATH")]
    config_file_dst: PathBuf,

    #[command(flatten)]
    selection: Selection,

    /// Whether a program is signalled when its file is another one, or says something else
    #[arg(long, env = env::SEND_SIGNAL, value_name = "BOOL", default_value = "true", value_parser = vendor::parse_bool,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    send_signal: bool,

    /// The number of the signal
    #[arg(long, env = env::SIGNAL, default_value = "1", value_name = "NUMBER", value_parser = process::parse_signal)]
    signal: rustix::process::Signal,

    /// The program that is signalled, by name or path; the vendor's names stand for ours too
    #[arg(
        long,
        env = env::PROCESS_TO_SIGNAL,
        default_value = "nvidia-device-plugin",
        value_name = "NAME"
    )]
    process_to_signal: String,

    #[command(flatten)]
    logging: Logging,
}

/// How a file is chosen; the same arguments for all who choose.
#[derive(Debug, Clone, Args)]
pub(crate) struct Selection {
    /// The label of the node that names a configuration file
    #[arg(
        long,
        env = env::NODE_LABEL,
        default_value = "nvidia.com/device-plugin.config",
        value_name = "KEY"
    )]
    node_label: String,

    /// The configuration file that is chosen without a label
    #[arg(
        long,
        env = env::DEFAULT_CONFIG,
        default_value = "",
        hide_default_value = true,
        value_name = "NAME"
    )]
    default_config: String,

    /// What is chosen without a label and a default: `named` (the file `default`), `single` (the only file) or `empty` (no
    /// settings), the first that is there; joined by commas
    #[arg(long, env = env::FALLBACK_STRATEGIES, value_delimiter = ',', value_name = "NAMES")]
    fallback_strategies: Vec<Fallback>,
}

impl Selection {
    fn choose(&self, label: &str, files: &BTreeSet<String>) -> Result<Choice, NoChoice> {
        Choice::new(label, &self.default_config, &self.fallback_strategies, files)
    }
}

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long the API server may take before a program that chooses once gives up.
const ANSWER: Duration = Duration::from_mins(2);

/// Runs `config-manager` with these arguments, the program's name first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let manager: ConfigManager = program::parse(arguments);
    program::run(|| {
        manager.logging.start()?;
        executor::run(manager.run())
    })
}

impl ConfigManager {
    async fn run(&self) -> anyhow::Result<()> {
        let mut signals = StopSignals::new()?;
        tokio::select! {
            done = self.manage() => done,
            signal = signals.recv() => {
                tracing::info!("{signal}: ending");
                Ok(())
            }
        }
    }

    /// Once, or for ever.
    async fn manage(&self) -> anyhow::Result<()> {
        let config = cluster::config(self.kubeconfig.as_deref()).await?;
        let client = Client::try_from(config).context("cannot set up the way to the API server")?;
        let labels = labels(client, &self.node_name, &self.selection.node_label);
        if self.oneshot {
            return self.once(labels).await;
        }
        self.follow(labels).await;
        bail!("the watch of the node ended")
    }

    async fn once(&self, labels: impl Stream<Item = String>) -> anyhow::Result<()> {
        let mut labels = pin!(labels);
        let label = tokio::time::timeout(ANSWER, labels.next()).await;
        let label = label.with_context(|| format!("the API server did not say what node `{}` is", self.node_name))?;
        let mut state = State::new(self);
        state.label = Some(label.unwrap_or_default());
        state.switch()?;
        state.signal()
    }

    /// Follows the label and the files for ever: what cannot be done stays as it is, is said once, and tried again.
    async fn follow(&self, labels: impl Stream<Item = String>) {
        let mut labels = pin!(labels);
        let mut state = State::new(self);
        loop {
            tokio::select! {
                label = labels.next() => match label {
                    Some(label) => state.label = Some(label),
                    None => return,
                },
                () = sleep(LOOK) => {}
            }
            let done = state.switch().and_then(|()| state.signal());
            state.say(done);
        }
    }
}

/// What is chosen, and what is still to be told.
struct State<'a> {
    settings: &'a ConfigManager,
    files: Files<'a>,
    /// What the label says, nothing where there is none; `None` before the API server has said.
    label: Option<String>,
    chosen: Option<Choice>,
    /// What the link says, to see when a file is edited.
    text: Option<String>,
    /// Whether the program has yet to be signalled.
    pending: bool,
    complaint: Option<String>,
}

impl<'a> State<'a> {
    fn new(settings: &'a ConfigManager) -> Self {
        let files = Files {
            folder: &settings.config_file_srcdir,
            link: &settings.config_file_dst,
        };
        Self {
            settings,
            files,
            label: None,
            chosen: None,
            text: files.text(),
            pending: false,
            complaint: None,
        }
    }

    /// Makes the link lead to what is chosen.
    fn switch(&mut self) -> anyhow::Result<()> {
        let Some(label) = &self.label else { return Ok(()) };
        let names = link::names(self.files.folder)?;
        let settings = self.settings;
        let choice = match settings.selection.choose(label, &names) {
            Ok(choice) => choice,
            // A program that starts finds no file at the end of such a link.
            Err(error) if self.files.is_broken() && !settings.oneshot => {
                tracing::warn!("{error}: as without a label");
                settings.selection.choose("", &names)?
            }
            Err(error) => return Err(error.into()),
        };
        if self.files.lead_to(&choice)? {
            tracing::info!("`{}` is now {choice}", settings.config_file_dst.display());
            self.pending = true;
        } else if self.chosen.as_ref() != Some(&choice) {
            tracing::info!("`{}` is {choice} already", settings.config_file_dst.display());
        }
        self.chosen = Some(choice);
        let text = self.files.text();
        if text != self.text {
            self.pending = true;
            self.text = text;
        }
        Ok(())
    }

    fn signal(&mut self) -> anyhow::Result<()> {
        if self.pending && self.settings.send_signal {
            let receiver = Receiver::new(&self.settings.process_to_signal);
            let processes = receiver.find("/proc".as_ref())?;
            process::send(&processes, self.settings.signal)?;
            tracing::info!("signalled `{}`", self.settings.process_to_signal);
        }
        self.pending = false;
        Ok(())
    }

    fn say(&mut self, done: anyhow::Result<()>) {
        let complaint = done.err().map(|error| program::chain(&error));
        if let Some(text) = complaint.as_ref().filter(|_| complaint != self.complaint) {
            tracing::warn!("{text}; what is in force stays, and it is tried again");
        }
        self.complaint = complaint;
    }
}

/// What the label of a node says, now and whenever it may have changed; nothing where it, or the node, is not there.
///
/// An API server that is not reached is asked again, ever less often.
fn labels(client: Client, node: &str, label: &str) -> impl Stream<Item = String> + use<> {
    let nodes: Api<DynamicObject> =
        Api::all_with(client, &ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Node")));
    let label = label.to_owned();
    let value = move |node: Option<DynamicObject>| node?.metadata.labels?.remove(&label);
    let fields = format!("metadata.name={node}");
    let config = watcher::Config::default().fields(&fields);
    // Each event is the node or that it is gone; the list at the start may have none.
    let nodes = watcher(nodes, config).default_backoff().inspect_err(|error| {
        tracing::warn!("cannot watch the node: {error}; trying again");
    });
    let seen = nodes.scan(None, |current: &mut Option<DynamicObject>, event| {
        let told = match event {
            Ok(watcher::Event::Init) => {
                *current = None;
                false
            }
            Ok(watcher::Event::InitApply(node)) => {
                *current = Some(node);
                false
            }
            Ok(watcher::Event::InitDone) => true,
            Ok(watcher::Event::Apply(node)) => {
                *current = Some(node);
                true
            }
            Ok(watcher::Event::Delete(_)) => {
                *current = None;
                true
            }
            Err(_) => false,
        };
        std::future::ready(Some(told.then(|| current.clone())))
    });
    seen.filter_map(std::future::ready)
        .map(move |node| value(node).unwrap_or_default())
}

#[cfg(test)]
mod tests;
