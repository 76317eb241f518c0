//! Calls that may never return, made on another thread.
//!
//! A driver that hangs keeps the thread that called it, and nothing can take the thread back. So calls are made on a worker;
//! when one call takes longer than is allowed, the worker is left to it and remembered until it comes back.

use std::{
    collections::BTreeMap,
    fmt, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{Error, Result};

type Job = Box<dyn FnOnce() + Send>;

/// What a piece of work is about. While a call about it hangs, no other is begun.
pub(super) type Subject = Option<u32>;

/// A call that has not returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StuckCall {
    /// NVML's index of the GPU; `None` for a call about the whole node.
    pub index: Option<u32>,
    /// The NVML function.
    pub call: &'static str,
    /// When it was called.
    pub since: Instant,
}

impl fmt::Display for StuckCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "has not returned for {} s", self.since.elapsed().as_secs())
    }
}

/// The call that a thread is in.
#[derive(Debug)]
pub(super) struct Progress(Mutex<StuckCall>);

impl Progress {
    pub(super) fn new(subject: Subject) -> Arc<Self> {
        Arc::new(Self(Mutex::new(StuckCall {
            index: subject,
            call: "",
            since: Instant::now(),
        })))
    }

    /// Notes what the next calls are about.
    pub(super) fn about(&self, subject: Subject) {
        lock(&self.0).index = subject;
    }

    /// Notes the call that comes next, and makes it.
    pub(super) fn call<T>(&self, call: &'static str, make: impl FnOnce() -> T) -> T {
        let mut now = lock(&self.0);
        (now.call, now.since) = (call, Instant::now());
        drop(now);
        make()
    }

    fn current(&self) -> StuckCall {
        *lock(&self.0)
    }
}

type Stuck = Mutex<BTreeMap<Subject, Arc<Progress>>>;

/// The workers of one library: one that waits for work, and those that have not come back.
#[derive(Debug, Default)]
pub(super) struct Workers {
    idle: Mutex<Option<Sender<Job>>>,
    stuck: Arc<Stuck>,
}

/// Why a piece of work has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// This call has not returned for so long.
    Hung(StuckCall),
    /// The work panicked.
    Panicked,
    /// There is no thread to do it.
    Thread(std::io::Error),
}

impl Failure {
    /// The error for work about the whole node.
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Hung(stuck) => Error::Hung {
                call: stuck.call,
                elapsed: stuck.since.elapsed(),
            },
            Self::Panicked => Error::Thread(std::io::Error::other("it panicked")),
            Self::Thread(error) => Error::Thread(error),
        }
    }
}

impl Workers {
    /// Does `work` on a worker, as long as no single call takes longer than `limit`.
    pub(super) fn run<T: Send + 'static>(
        &self,
        subject: Subject,
        limit: Duration,
        work: impl FnOnce(&Progress) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        if let Some(stuck) = self.stuck(subject) {
            return Err(Failure::Hung(stuck));
        }
        let progress = Progress::new(subject);
        let (sender, result) = mpsc::sync_channel(1);
        let job: Job = Box::new({
            let progress = Arc::clone(&progress);
            let stuck = Arc::clone(&self.stuck);
            move || {
                let done = work(&progress);
                finish(&stuck, &progress, &sender, done);
            }
        });
        let worker = self.send(job).map_err(Failure::Thread)?;
        let done = self.wait(limit, &progress, &result)?;
        *lock(&self.idle) = Some(worker);
        Ok(done)
    }

    /// Waits for what a thread [finishes](Self::finish), as long as no single call takes longer than `limit`.
    pub(super) fn wait<T>(
        &self,
        limit: Duration,
        progress: &Arc<Progress>,
        result: &Receiver<T>,
    ) -> Result<T, Failure> {
        let mut wait = limit;
        loop {
            match result.recv_timeout(wait) {
                Ok(done) => return Ok(done),
                Err(RecvTimeoutError::Disconnected) => return Err(Failure::Panicked),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let mut stuck = lock(&self.stuck);
            if let Ok(done) = result.try_recv() {
                return Ok(done);
            }
            let call = progress.current();
            match limit.checked_sub(call.since.elapsed()) {
                Some(left) if !left.is_zero() => wait = left,
                _ => {
                    stuck.insert(call.index, Arc::clone(progress));
                    return Err(Failure::Hung(call));
                }
            }
        }
    }

    /// Gives what a thread has done to whoever [waits](Self::wait) for it; `false` if it was given up.
    pub(super) fn finish<T>(&self, progress: &Arc<Progress>, result: &SyncSender<T>, done: T) -> bool {
        finish(&self.stuck, progress, result, done)
    }

    /// The call about it that was given up and has not returned.
    pub(super) fn stuck(&self, subject: Subject) -> Option<StuckCall> {
        lock(&self.stuck).get(&subject).map(|progress| progress.current())
    }

    /// The calls that were given up and have not returned: one thread each.
    pub(super) fn stuck_calls(&self) -> Vec<StuckCall> {
        lock(&self.stuck).values().map(|progress| progress.current()).collect()
    }

    /// Gives the job to the worker that waits, or to a new one.
    fn send(&self, job: Job) -> std::io::Result<Sender<Job>> {
        let idle = mem::take(&mut *lock(&self.idle));
        let job = match idle {
            Some(worker) => match worker.send(job) {
                Ok(()) => return Ok(worker),
                Err(back) => back.0, // it panicked in the work before this
            },
            None => job,
        };
        let (worker, jobs) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name("gpu-nvml".to_owned())
            .spawn(move || jobs.into_iter().for_each(|job| job()))?;
        // It takes jobs until this end is dropped.
        let _ = worker.send(job);
        Ok(worker)
    }
}

/// Under the lock, so that whoever gives up on the work finds either its result or nothing.
fn finish<T>(stuck: &Stuck, progress: &Arc<Progress>, result: &SyncSender<T>, done: T) -> bool {
    let mut stuck = lock(stuck);
    let before = stuck.len();
    stuck.retain(|_, left| !Arc::ptr_eq(left, progress));
    // Nobody takes it if the work was given up.
    stuck.len() == before && result.try_send(done).is_ok()
}

/// What the mutexes hold is whole at any time, also after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_mins(1);

    #[test]
    fn work_that_keeps_calling_is_not_cut_off() {
        let workers = Workers::default();
        let done = workers.run(None, Duration::from_millis(200), |progress| {
            for _ in 0..20 {
                progress.call("brief", || thread::sleep(Duration::from_millis(20)));
            }
            7
        });
        assert_eq!(done.unwrap(), 7);
        assert_eq!(workers.stuck_calls(), []);
    }

    #[test]
    fn a_call_that_hangs_is_cut_off_and_counted_until_it_returns() {
        let workers = Workers::default();
        let (release, hang) = mpsc::channel::<()>();
        let failure = workers.run(Some(3), SHORT, move |progress| {
            progress.call("hangs", || hang.recv()).is_ok()
        });
        let Err(Failure::Hung(call)) = failure else {
            panic!("{failure:?}")
        };
        assert_eq!((call.index, call.call), (Some(3), "hangs"));
        assert!(call.since.elapsed() >= SHORT);

        // The same subject is not asked again, and others are.
        let again = workers.run(Some(3), LONG, |_| ());
        assert!(matches!(again, Err(Failure::Hung(_))), "{again:?}");
        assert_eq!(workers.run(Some(4), LONG, |_| 4).unwrap(), 4);
        assert_eq!(workers.stuck_calls().len(), 1);

        release.send(()).unwrap();
        while !workers.stuck_calls().is_empty() {
            thread::yield_now();
        }
        assert_eq!(workers.run(Some(3), LONG, |_| 3).unwrap(), 3);
    }

    #[test]
    fn one_worker_does_all_work_that_returns() {
        let workers = Workers::default();
        let on = |_: &Progress| thread::current().id();
        let first = workers.run(Some(0), LONG, on).unwrap();
        assert_eq!(workers.run(Some(1), LONG, on).unwrap(), first);
    }

    #[test]
    fn work_that_panics_is_an_error_and_the_next_is_done() {
        let workers = Workers::default();
        let failure = workers.run(None, LONG, |_| panic!("on purpose"));
        assert!(matches!(failure, Err(Failure::Panicked)), "{failure:?}");
        assert_eq!(workers.run(None, LONG, |_| 1).unwrap(), 1);
    }
}
