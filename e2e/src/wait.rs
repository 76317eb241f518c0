//! Waiting for a cluster to get somewhere: polls with a deadline, never sleeps blind.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Error, Result, anyhow};

/// How long between two looks.
const INTERVAL: Duration = Duration::from_millis(100);

/// Looks until it sees something, and returns that.
///
/// `look` says `Ok(Some(value))` when it is there, `Ok(None)` when not yet; an error counts as not yet, and is told if
/// it was the last word.
///
/// # Errors
/// If it was not there within `limit`; the message names `what` and the last error.
///
/// # Example
/// ```
/// use std::time::Duration;
///
/// let mut looks = 0;
/// let seen = gpu_e2e::wait::until("the third look", Duration::from_secs(5), || {
///     looks += 1;
///     Ok((looks == 3).then_some("here"))
/// })?;
/// assert_eq!(seen, "here");
/// # Ok::<(), anyhow::Error>(())
/// ```
pub fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + limit;
    loop {
        let last: Option<Error> = match look() {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if Instant::now() >= deadline {
            let waited = format!("not within {} s: {what}", limit.as_secs_f32());
            return Err(match last {
                Some(error) => error.context(waited),
                None => anyhow!(waited),
            });
        }
        thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_says_what_was_waited_for_and_the_last_error() {
        let error = until::<()>("the pod runs", Duration::ZERO, || Err(anyhow!("it is Pending"))).unwrap_err();
        assert_eq!(format!("{error:#}"), "not within 0 s: the pod runs: it is Pending");
    }
}
