//! What runs a daemon's futures.

use std::{future::Future, time::Duration};

use tokio::runtime::Builder;

/// How many calls may block at once: each thread that was ever busy keeps memory of its own in the allocator. A daemon makes one
/// call into the driver at a time, and another may hang there.
const BLOCKING_THREADS: usize = 4;

/// How long a call that blocks may go on once the program has ended: one that hangs in the driver never ends.
const LAST_CALLS: Duration = Duration::from_millis(100);

/// Runs a program's future on this thread.
pub(crate) fn run<T>(program: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()?;
    let result = runtime.block_on(program);
    runtime.shutdown_timeout(LAST_CALLS);
    result
}
