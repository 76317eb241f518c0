//! A daemon that hangs, and whose keeper was killed.

use std::{fs, io, path::Path};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use tokio::time::{Instant, sleep};

use super::{
    Error, Result,
    keeper::{LOOK, START},
};
use crate::mps::names::{CONTROL, PID_FILE, PIPE_DIRECTORY};

/// Kills the daemon that serves a pipe folder. Whether there was one.
pub(super) async fn kill(pipe: &Path) -> Result<bool> {
    let pid = fs::read_to_string(pipe.join(PID_FILE)).ok();
    let Some(pid) = pid.and_then(|text| Pid::from_raw(text.trim().parse().ok()?)) else {
        return Ok(false);
    };
    let failed = |source: io::Error| Error::Kill {
        pid: pid.as_raw_nonzero().get().unsigned_abs(),
        source,
    };
    // Held before it is looked at: what is killed is what was looked at, whoever gets its number.
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(Errno::SRCH) => return Ok(false),
        Err(error) => return Err(failed(error.into())),
    };
    if !serves(pid, pipe) {
        return Ok(false);
    }
    match pidfd_send_signal(&process, Signal::KILL) {
        Err(error) if error != Errno::SRCH => return Err(failed(error.into())),
        _ => {}
    }
    let until = Instant::now() + START;
    while serves(pid, pipe) {
        if Instant::now() > until {
            return Err(failed(io::ErrorKind::TimedOut.into()));
        }
        sleep(LOOK).await;
    }
    Ok(true)
}

/// Whether a process is the daemon of a pipe folder. The file that tells its number may be from before, and its number another's.
fn serves(pid: Pid, pipe: &Path) -> bool {
    let read = |name: &str| fs::read(format!("/proc/{}/{name}", pid.as_raw_nonzero())).unwrap_or_default();
    let command_line = read("cmdline");
    let program = command_line.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = program.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let folder = format!("{PIPE_DIRECTORY}={}", pipe.display());
    name == CONTROL.as_bytes()
        && read("environ")
            .split(|byte| *byte == 0)
            .any(|word| word == folder.as_bytes())
}
