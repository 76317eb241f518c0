//! `gpu-device-plugin`: offers this node's GPUs to the kubelet, in the place of `nvidia-device-plugin`.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::Context;
use gpu_plugin::{Status, gpu_core::ownership::Owner};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Notify, watch},
};

pub(crate) use self::choice::Chosen;
use self::{
    arguments::{DevicePlugin, meaning::say_unknown_xids},
    choice::FileChoice,
    config_file::ConfigFile,
    probes::probes,
};
use crate::{
    executor, health,
    names::device_plugin as env,
    program,
    stop::{self, StopSignals},
};

mod arguments;
mod choice;
mod config_file;
mod probes;

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

#[cfg(test)]
mod tests;
