//! This program once more, to do one thing and end.

use std::{
    env,
    ffi::OsString,
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

/// How long a description may take: more than a driver that is just being loaded needs to answer.
const LIMIT: Duration = Duration::from_mins(2);

/// A child that does not outlive what started it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs this program with its arguments and one more, and waits until it ends; one that is not waited for any longer is
/// killed.
///
/// # Errors
/// If it cannot be started, or does not end in time: then it is killed.
pub(super) async fn run(argument: &str) -> anyhow::Result<ExitStatus> {
    let mut own = env::args_os();
    let name = own.next().unwrap_or_else(|| OsString::from("gpu-toolkit"));
    let mut command = Command::new("/proc/self/exe");
    // The name tells an executable of many programs which one it is.
    command.arg0(name).args(own).arg(argument);
    let mut child = Running(command.spawn().context("cannot start a child of this program")?);
    let started = Instant::now();
    loop {
        if let Some(status) = child.0.try_wait().context("cannot wait for a child of this program")? {
            return Ok(status);
        }
        if started.elapsed() > LIMIT {
            bail!(
                "the driver did not answer within {} s: its reader is killed",
                LIMIT.as_secs()
            );
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
