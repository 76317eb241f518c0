//! The log of calls, for whoever has asked for it. Off, it costs a look at the clock.

use std::{
    any::type_name,
    fs::File,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Instant, SystemTime},
};

use nvml_wrapper_sys::bindings::nvmlReturn_t;

use super::code::{Answer, number};
use crate::{
    Call,
    state::{self, State},
};

/// Whether calls are to be logged, as of the last look at the node.
static ON: AtomicBool = AtomicBool::new(false);
static LOG: Mutex<Option<File>> = Mutex::new(None);

/// Takes in whether calls are to be logged. Where the log cannot be opened they are not.
pub(super) fn follow(state: &State, on: bool) {
    if ON.load(Ordering::Relaxed) == on {
        return;
    }
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    *log = on.then(|| state.open_calls().ok()).flatten();
    ON.store(on, Ordering::Relaxed);
}

/// Answers a call. Its function is the one that the type `F` is of: a closure in it. `device` is asked only for the log,
/// after the call.
pub(super) fn called<F>(device: impl FnOnce() -> Option<String>, answer: impl FnOnce() -> Answer) -> nvmlReturn_t {
    let started = Instant::now();
    let code = number(answer());
    // After the call, which has looked at the node.
    if ON.load(Ordering::Relaxed) {
        let duration = started.elapsed();
        let now = SystemTime::now();
        let call = Call {
            time: now.checked_sub(duration).unwrap_or(now),
            pid: std::process::id(),
            function: function(type_name::<F>()).to_owned(),
            device: device(),
            code,
            duration,
        };
        let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = log.as_ref() {
            state::append_call(log, &call);
        }
    }
    code
}

/// The same of a closure that the compiler finds the type of.
pub(super) fn called_by<F: FnOnce() -> Answer>(answer: F) -> nvmlReturn_t {
    called::<F>(|| None, answer)
}

/// The NVML function in a type's name, which begins with its path: `gpu_sim::nvml::system::nvmlInit_v2::{{closure}}`.
fn function(name: &str) -> &str {
    let is_function = |part: &&str| {
        let rest = part.strip_prefix("nvml");
        rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_uppercase()))
    };
    let mut parts = name.split(|part: char| !part.is_alphanumeric() && part != '_');
    parts.find(is_function).unwrap_or("nvml")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_in_a_closures_type() {
        #[track_caller]
        fn check(name: &str, expected: &str) {
            assert_eq!(function(name), expected);
        }
        check("gpu_sim::nvml::system::nvmlInit_v2::{{closure}}", "nvmlInit_v2");
        check(
            "gpu_sim::nvml::mig::nvmlDeviceGetGpuInstanceId::{{closure}}::{{closure}}",
            "nvmlDeviceGetGpuInstanceId",
        );
        check("gpu_sim::nvml::devices::count::{{closure}}", "nvml");
    }
}
