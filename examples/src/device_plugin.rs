//! `gpu-device-plugin`: offers this node's GPUs to the kubelet, in the place of `nvidia-device-plugin`.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::Context;
use gpu_plugin::{Ailment, NodeConfig, ResourceStatus, Status, gpu_core::ownership::Owner};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Notify, watch},
};

pub(crate) use self::choice::Chosen;
use self::{
    arguments::{DevicePlugin, meaning::say_unknown_xids},
    choice::FileChoice,
};
use crate::{
    executor, health,
    last_read::LastRead,
    metrics::{self, Kind, Metric},
    names::{self, device_plugin as env},
    program,
    settings::Settings,
    stop::{self, StopSignals},
};

mod arguments;
mod choice;

/// Variables whose emptiness says something: no file, no socket; of the first, what the vendor's plugin takes for "never register" and
/// this one refuses.
const MEANT_EMPTY: &[&str] = &[env::KUBELET_SOCKET, env::OWNERS_FILE, env::POD_RESOURCES_SOCKET];

/// How often the configuration file is looked at.
const CONFIG_INTERVAL: Duration = Duration::from_secs(1);

/// Runs `gpu-device-plugin` with these arguments, the program's name first.
///
/// `config-manager` as the first of them runs that program.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<_> = arguments.into_iter().collect();
    #[cfg(feature = "config-manager")]
    if arguments.get(1).is_some_and(|argument| argument == "config-manager") {
        return crate::config_manager::main(arguments.into_iter().skip(1));
    }
    let plugin: DevicePlugin = program::parse_with(arguments::command(), MEANT_EMPTY, arguments);
    program::run(|| {
        plugin.logging.start()?;
        stop::end_in_time()?;
        match executor::run(serve(plugin)) {
            Err(error) if is_replaced(&error) => Err(start_anew(&error)),
            result => result,
        }
    })
}

fn is_replaced(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(gpu_plugin::Error::DriverReplaced(_)))
}

/// Becomes a new process of the same number, which loads the new driver's library. Returns only if that is not possible.
fn start_anew(why: &anyhow::Error) -> anyhow::Error {
    tracing::warn!("{}: starting anew", program::chain(why));
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let failed = Command::new("/proc/self/exe").arg0(name).args(arguments).exec();
    anyhow::Error::new(failed).context("cannot start anew with the new driver's library")
}

async fn serve(plugin: DevicePlugin) -> anyhow::Result<()> {
    // All that answers from outside comes before what may take its time: the label of the node is asked of the API server.
    let mut signals = StopSignals::new()?;
    let mut hang_up = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
    say_unknown_xids();
    let mut choice = FileChoice::new(plugin.chosen_file().await?);
    let status = watch::Sender::new(Status::default());
    let told = choice.told(status.subscribe());
    #[cfg(feature = "node-events")]
    if let Some(node) = plugin.cluster.node_name.clone() {
        let kubeconfig = plugin.cluster.kubeconfig.as_deref();
        crate::events::start(node, kubeconfig, told.clone()).await;
    }
    if let Some(address) = plugin.listen {
        health::serve(address, probes(told)).await?;
    }
    let plugin = loop {
        tokio::select! {
            plugin = choice.first(&plugin) => break plugin?,
            signal = signals.recv() => {
                tracing::info!("{signal}: ending");
                return Ok(());
            }
            _ = hang_up.recv() => tracing::info!("SIGHUP: there is no configuration to read again yet"),
        }
    };
    let settings = plugin.settings()?;
    let config = plugin.node_config(&settings.config)?;
    let owners = config.owners.clone();
    let (configs, reload) = (watch::Sender::new(config), Notify::new());
    let sockets = plugin.sockets();
    let release_on_exit = plugin.release_on_exit;
    let mut file = ConfigFile::new(settings);
    let stop = async {
        let mut plugin = plugin;
        loop {
            tokio::select! {
                other = choice.changed(&plugin) => match other {
                    Ok(other) => {
                        plugin = other;
                        file.read(&plugin, &configs, &status);
                    }
                    Err(error) => tracing::error!("the configuration in force stays: {}", program::chain(&error)),
                },
                signal = signals.recv() => {
                    tracing::info!("{signal}: ending");
                    return;
                }
                _ = hang_up.recv() => {
                    file.read(&plugin, &configs, &status);
                    reload.notify_one();
                }
                () = tokio::time::sleep(CONFIG_INTERVAL) => {
                    if file.changed(&plugin) {
                        file.read(&plugin, &configs, &status);
                    }
                }
            }
        }
    };
    gpu_plugin::run(configs.subscribe(), &sockets, &reload, &status, stop).await?;
    if let Some(owners) = owners.filter(|_| release_on_exit) {
        owners
            .release_all(Owner::DevicePlugin)
            .context("cannot give up the GPUs")?;
    }
    Ok(())
}

/// `/healthz` is well as long as the program runs; `/readyz` while the kubelet has all that there is to offer, as the newest
/// configuration wants it.
fn probes(status: watch::Receiver<Status>) -> impl Fn(&str) -> Option<health::Answer> {
    move |path| match path {
        "/healthz" => Some(Ok("ok".to_owned())),
        "/readyz" => Some(ready(&status.borrow()).map(|()| "ok".to_owned())),
        health::METRICS => Some(Ok(metrics::text(metrics_of(&status.borrow())))),
        _ => None,
    }
}

fn ready(status: &Status) -> Result<(), String> {
    status.ready()?;
    match &status.refused {
        Some(reason) => Err(format!("the configuration in force stays: {reason}")),
        None => Ok(()),
    }
}

fn metrics_of(status: &Status) -> Vec<Metric> {
    let resources = &status.resources;
    let health = |resource: &ResourceStatus| {
        let count = |health: &str, count: usize| {
            let labels = vec![("resource", resource.name.to_string()), ("health", health.to_owned())];
            (labels, count as u64)
        };
        let unhealthy = resource.devices.saturating_sub(resource.healthy);
        [count("healthy", resource.healthy), count("unhealthy", unhealthy)]
    };
    let registered = |resource: &ResourceStatus| {
        let labels = vec![("resource", resource.name.to_string())];
        (labels, u64::from(resource.registered))
    };
    let ailing = |ailment: &Ailment| {
        let part = &ailment.part;
        let mut labels = vec![("gpu", part.gpu.to_string()), ("health", ailment.health.to_string())];
        let instances = [
            ("gpu_instance", part.gpu_instance),
            ("compute_instance", part.compute_instance),
        ];
        labels.extend(
            instances
                .into_iter()
                .filter_map(|(name, id)| Some((name, id?.to_string()))),
        );
        (labels, 1)
    };
    vec![
        Metric {
            name: names::metrics::PLUGIN_DEVICES,
            help: "Devices that the kubelet is told, replicas counted",
            kind: Kind::Gauge,
            samples: resources.iter().flat_map(health).collect(),
        },
        Metric {
            name: names::metrics::PLUGIN_REGISTERED,
            help: "Whether the kubelet has registered a resource and listens",
            kind: Kind::Gauge,
            samples: resources.iter().map(registered).collect(),
        },
        Metric {
            name: names::metrics::PLUGIN_AILING,
            help: "GPUs, or instances of them, that are suspect or unhealthy",
            kind: Kind::Gauge,
            samples: status.ailments.iter().map(ailing).collect(),
        },
        Metric {
            name: names::metrics::PLUGIN_CONFIG_REFUSED,
            help: "Whether the newest configuration is refused and the one before it in force",
            kind: Kind::Gauge,
            samples: vec![(Vec::new(), u64::from(status.refused.is_some()))],
        },
        Metric {
            name: names::metrics::PLUGIN_PROBLEMS,
            help: "How many things are amiss on the node; the log names them",
            kind: Kind::Gauge,
            samples: vec![(Vec::new(), status.problems.len() as u64)],
        },
    ]
}

/// The configuration file, which is taken over or refused.
struct ConfigFile(LastRead);

impl ConfigFile {
    fn new(settings: Settings) -> Self {
        Self::say(&settings);
        Self(LastRead::new(settings.text))
    }

    fn say(settings: &Settings) {
        for warning in &settings.warnings {
            tracing::warn!("{warning}");
        }
        tracing::debug!("running with {:?}", settings.config);
    }

    /// Whether the file is another than it was read last.
    fn changed(&mut self, plugin: &DevicePlugin) -> bool {
        self.0.look(plugin.config_text())
    }

    /// Takes the file over, or keeps what is in force and says why.
    fn read(&mut self, plugin: &DevicePlugin, configs: &watch::Sender<NodeConfig>, status: &watch::Sender<Status>) {
        self.0.look(plugin.config_text());
        let read = || {
            let settings = plugin.settings()?;
            let config = plugin.node_config(&settings.config)?;
            anyhow::Ok((settings, config))
        };
        match read() {
            Ok((settings, config)) => {
                Self::say(&settings);
                // Before it is handed on, since it may be refused there; one that was refused is tried again.
                let mut refused = false;
                status.send_if_modified(|status| {
                    refused = status.refused.take().is_some();
                    refused
                });
                configs.send_if_modified(|known| {
                    let changed = *known != config;
                    *known = config;
                    changed || refused
                });
            }
            Err(error) => {
                let reason = program::chain(&error);
                tracing::error!("the configuration in force stays: {reason}");
                status.send_modify(|status| status.refused = Some(reason));
            }
        }
    }
}

#[cfg(test)]
mod tests;
