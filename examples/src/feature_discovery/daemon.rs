//! Round after round.

use std::time::Duration;

use anyhow::Context;
use gpu_labels::gpu_sharing::config::Interval;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{arguments::FeatureDiscovery, labeller::Labeller};
use crate::{
    health,
    settings::Settings,
    stop::{self, StopSignals},
};

/// How often the configuration file is looked at.
const CONFIG_INTERVAL: Duration = Duration::from_secs(1);
/// The wait after a round that failed; it doubles up to the interval or a minute, whichever is shorter.
const BACK_OFF: Duration = Duration::from_secs(1);
/// How long taking the labels back may last: a daemon ends within two seconds.
const WITHDRAWAL: Duration = Duration::from_millis(1500);

/// Labels the node once.
pub(super) async fn run_once(arguments: &FeatureDiscovery, settings: Settings) -> anyhow::Result<()> {
    Labeller::new(arguments, settings, None).await?.round().await
}

/// Labels the node until it is told to end.
pub(super) async fn run(arguments: &FeatureDiscovery, settings: Settings) -> anyhow::Result<()> {
    stop::end_in_time()?;
    let mut signals = StopSignals::new()?;
    let (changes, changed) = mpsc::unbounded_channel();
    let mut labeller = Labeller::new(arguments, settings, Some(changes)).await?;
    if let Some(address) = arguments.ours.listen {
        // Always well: its labels stay while it fails, so that being started anew would help nobody.
        let state = labeller.state();
        let answer = move |path: &str| (path == "/healthz").then(|| Ok(state.borrow().clone()));
        health::serve(address, answer).await?;
    }
    // Whatever it waits for, an API server or a driver, it is told to end at once.
    let signal = tokio::select! {
        ended = label(&mut labeller, changed) => return ended,
        signal = signals.recv() => signal,
    };
    if !arguments.ours.remove_on_exit {
        tracing::info!("{signal}: ending; the labels stay");
        return Ok(());
    }
    tracing::info!("{signal}: ending; the labels are taken back");
    let withdrawn = tokio::time::timeout(WITHDRAWAL, labeller.withdraw()).await;
    withdrawn.context("the labels could not be taken back in time")?
}

/// Round after round, for ever; it ends with an error that would not get better, at the start, and with the one round that
/// a new configuration may ask for.
async fn label(labeller: &mut Labeller<'_>, mut changed: mpsc::UnboundedReceiver<()>) -> anyhow::Result<()> {
    let mut hang_up = signal(SignalKind::hangup()).context("cannot wait for SIGHUP")?;
    let mut back_off = BACK_OFF;
    loop {
        let round = labeller.round().await;
        if labeller.is_one_shot() {
            return round;
        }
        let interval = match labeller.interval() {
            Interval::Every(time) => time,
            Interval::Infinite => Duration::MAX,
        };
        let pause = match round {
            Ok(()) => {
                back_off = BACK_OFF;
                interval
            }
            Err(error) => {
                labeller.failed(error)?;
                let pause = back_off.min(interval);
                back_off = back_off.saturating_mul(2).min(Duration::from_mins(1));
                pause
            }
        };
        let until = Instant::now().checked_add(pause);
        loop {
            let reload = tokio::select! {
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
}
