//! The signals that end a daemon, and an end that comes in time.

#[cfg(any(feature = "device-plugin", feature = "feature-discovery", feature = "mps-daemon"))]
use std::{io, thread, time::Duration};

use anyhow::Context as _;
#[cfg(any(feature = "device-plugin", feature = "feature-discovery", feature = "mps-daemon"))]
use rustix::process::{getpid, kill_process};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long an orderly end may take; it is promised within two seconds, and takes one at most.
#[cfg(any(feature = "device-plugin", feature = "feature-discovery", feature = "mps-daemon"))]
const LIMIT: Duration = Duration::from_millis(1700);

/// Waits for SIGTERM, SIGINT and SIGQUIT, and for SIGHUP where that is asked for.
pub(crate) struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hangup: Option<Signal>,
}

fn wait_for(kind: SignalKind) -> anyhow::Result<Signal> {
    signal(kind).context("cannot wait for signals")
}

impl StopSignals {
    /// Must be called in a tokio runtime. From here on these signals do not end the process by themselves.
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: wait_for(SignalKind::terminate())?,
            interrupt: wait_for(SignalKind::interrupt())?,
            quit: wait_for(SignalKind::quit())?,
            hangup: None,
        })
    }

    /// The same and SIGHUP, for a program that has nothing to read again.
    #[cfg(feature = "toolkit")]
    pub(crate) fn with_hangup() -> anyhow::Result<Self> {
        Ok(Self {
            hangup: Some(wait_for(SignalKind::hangup())?),
            ..Self::new()?
        })
    }

    /// The name of the next one.
    pub(crate) async fn recv(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.quit.recv() => "SIGQUIT",
            Some(()) = async { self.hangup.as_mut()?.recv().await } => "SIGHUP",
        }
    }
}

/// Kills the process after a signal if it has not ended in time.
///
/// A driver library that hangs while it is loaded holds the loader's lock, and without that no thread gets its first
/// thread-local value and no process runs its exit handlers. So this happens on a thread of its own and needs neither.
#[cfg(any(feature = "device-plugin", feature = "feature-discovery", feature = "mps-daemon"))]
pub(crate) fn end_in_time() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _inside = runtime.enter();
        StopSignals::new()?
    };
    let wait = move || {
        runtime.block_on(async {
            signals.recv().await;
            tokio::time::sleep(LIMIT).await;
        });
        // Best effort, and without what may wait for the lock: a log would.
        let _ = rustix::io::write(io::stderr(), b"error: a call into the driver hangs: killed\n");
        let _ = kill_process(getpid(), rustix::process::Signal::KILL);
    };
    thread::Builder::new()
        .name("gpu-end".to_owned())
        .spawn(wait)
        .context("cannot start a thread")?;
    Ok(())
}
