//! How long something is waited for.

use std::{
    io::{self, ErrorKind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Has an [`apply`](super::apply) that waits for its engine end early, from another thread. Clones are one and the same.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Ends the waiting, now and later.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was ended.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Until when something is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience<'s> {
    start: Instant,
    limit: Duration,
    stop: &'s Stop,
}

impl<'s> Patience<'s> {
    pub(super) fn of(limit: Duration, stop: &'s Stop) -> Self {
        Self {
            start: Instant::now(),
            limit,
            stop,
        }
    }

    /// An error when it is at its end.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.stop.is_stopped() {
            return Err(io::Error::new(
                ErrorKind::Interrupted,
                "it was not waited for any longer",
            ));
        }
        if self.start.elapsed() < self.limit {
            return Ok(());
        }
        let text = format!("nothing within {} s", self.limit.as_secs());
        Err(io::Error::new(ErrorKind::TimedOut, text))
    }
}
