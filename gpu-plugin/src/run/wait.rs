//! Waiting for what may never be.

use tokio::{
    task::{self, JoinHandle},
    time::{self, Instant},
};

/// Completes at that moment; never where there is none.
pub(super) async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Does work that may take its time. A panic there is a panic here.
pub(super) async fn off_the_runtime<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    finished(&mut Some(task::spawn_blocking(work))).await
}

/// What the task has done, once it has; it is none then. Never where there is none.
pub(super) async fn finished<T>(task: &mut Option<JoinHandle<T>>) -> T {
    let Some(running) = task else {
        return std::future::pending().await;
    };
    match running.await {
        Ok(done) => {
            *task = None;
            done
        }
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only a runtime that ends cancels it, and that ends this future too.
            Err(_) => std::future::pending().await,
        },
    }
}
