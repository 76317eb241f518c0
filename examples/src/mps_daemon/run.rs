//! From the start to a signal: what happens, and what is done then.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

use super::{
    MpsDaemon,
    keeper::Keeper,
    node::Node,
    told::{Shared, lock, probes},
};
use crate::{health, program, settings::Settings, stop::StopSignals};

/// How often the configuration file is looked at.
const CONFIG_INTERVAL: Duration = Duration::from_secs(1);
/// The wait before a node that cannot be read is read again; it doubles up to the longest.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Runs the daemons until a signal ends them.
pub(super) async fn run(arguments: &MpsDaemon, settings: Settings, control: PathBuf) -> anyhow::Result<()> {
    let mut signals = StopSignals::new()?;
    let mut hang_up = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
    let told = Shared::default();
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
    keeper.stop().await
}
