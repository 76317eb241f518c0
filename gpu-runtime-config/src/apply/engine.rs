//! Restarting an engine and seeing whether it lives.

use std::{
    io::ErrorKind,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    Apply, Error, Socket, Step, Stop,
    patience::Patience,
    program::{on_host, run},
    socket::{LIMIT, is_nobody},
};

/// How an engine is made to read its files again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Restart {
    /// Not at all: somebody else does it, or the engine watches its files.
    None,
    /// `systemctl restart` of the first of these units that is active, in the host's root.
    Systemd {
        /// The units.
        units: Vec<String>,
    },
    /// SIGHUP to the process behind this socket. Docker reads its file again; containerd ends, and its service manager
    /// starts it anew. Needs the host's process ids.
    Signal {
        /// The engine's socket.
        socket: Socket,
    },
}

/// When an engine counts as alive: the same process is behind its socket for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The engine's socket.
    pub socket: Socket,
    /// How long to wait for it.
    pub timeout: Duration,
    /// How long it has to stay, because an engine that dislikes its file may end only after it has opened its socket.
    pub settle: Duration,
    /// Whether the restart must give another process: not for Docker by signal.
    pub new_process: bool,
}

const PAUSE: Duration = Duration::from_millis(100);

/// How long systemd may take: unless told otherwise it gives a unit 90 s to end and 90 s to start.
const SYSTEMD: Duration = Duration::from_mins(4);

/// How long the last request of a program may take that was told to stop.
const LAST: Duration = Duration::from_secs(1);

/// That an engine does not live, or that nothing is known of it.
pub(super) struct Failure {
    pub(super) cause: Error,
    /// Whether it was told to read its files.
    pub(super) is_told: bool,
}

impl Failure {
    /// Whether not even an attempt was made to have it read its files.
    pub(super) fn is_before_restart(&self) -> bool {
        !self.is_told && matches!(self.cause, Error::Stopped { .. })
    }
}

pub(super) fn restart_and_check(how: &Apply) -> Result<(), Failure> {
    let before = how.health.as_ref().and_then(|health| {
        health
            .socket
            .process(&how.host_root, Patience::of(LIMIT, &how.stop))
            .ok()
    });
    restart(how).map_err(|cause| Failure { cause, is_told: false })?;
    let Some(health) = &how.health else { return Ok(()) };
    (how.tell)(Step::Awaited(health));
    let replaced = health.new_process && how.restart != Restart::None;
    let lives = wait(how, health, before.flatten().filter(|_| replaced));
    lives.map_err(|cause| Failure { cause, is_told: true })
}

fn restart(how: &Apply) -> Result<(), Error> {
    let (root, stop) = (&how.host_root, &how.stop);
    match &how.restart {
        Restart::None => Ok(()),
        _ if stop.is_stopped() => Err(Error::stopped("before the engine was told to read its files")),
        Restart::Systemd { units } => systemd(root, units, &[], Patience::of(SYSTEMD, stop)),
        Restart::Signal { socket } => signal(root, socket, Patience::of(LIMIT, stop)),
    }
}

/// Has the engine read its files, whatever comes of it: the last that is done by a program that was told to stop.
pub(super) fn restart_without_waiting(how: &Apply) -> Result<(), Error> {
    let (root, stop) = (&how.host_root, Stop::default());
    let patience = Patience::of(LAST, &stop);
    match &how.restart {
        Restart::None => Ok(()),
        Restart::Systemd { units } => systemd(root, units, &["--no-block"], patience),
        Restart::Signal { socket } => signal(root, socket, patience),
    }
}

fn systemd(root: &Path, units: &[String], options: &[&str], patience: Patience<'_>) -> Result<(), Error> {
    let active = |unit: &&String| systemctl(root, &["is-active", "--quiet", unit], patience).is_ok();
    let unit = units.iter().find(active).or(units.first());
    let unit = unit.ok_or_else(|| failed("systemd", "no unit is named".to_owned()))?;
    let arguments = [options, &["restart", unit]].concat();
    systemctl(root, &arguments, patience).map_err(|reason| failed(&format!("`systemctl restart {unit}`"), reason))
}

fn signal(root: &Path, socket: &Socket, patience: Patience<'_>) -> Result<(), Error> {
    let method = format!("SIGHUP to the process behind `{}`", socket.path.display());
    let pid = match socket.process(root, patience) {
        Ok(pid) => pid,
        // An engine that does not run reads its files when it is started.
        Err(error) if is_nobody(&error) => return Ok(()),
        Err(error) => return Err(failed(&method, error.to_string())),
    };
    let pid = pid.ok_or_else(|| failed(&method, "it is in another process namespace".to_owned()))?;
    check_engine(pid, &socket.path)?;
    kill_process(pid, Signal::HUP).map_err(|error| failed(&method, error.to_string()))
}

/// Refuses process 1, the node's service manager: SIGHUP would have it read all of its units again, and no engine its files.
fn check_engine(pid: Pid, socket: &Path) -> Result<(), Error> {
    if pid != Pid::INIT {
        return Ok(());
    }
    let socket = socket.to_owned();
    Err(Error::NotTheEngine { socket })
}

fn failed(method: &str, reason: String) -> Error {
    Error::Restart {
        method: method.to_owned(),
        reason,
    }
}

/// Runs the host's systemctl; its last words if it fails.
fn systemctl(root: &Path, arguments: &[&str], patience: Patience<'_>) -> Result<(), String> {
    let mut command = on_host(root, Path::new("systemctl"));
    command.args(arguments);
    let output = run(command, patience).map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(if words.is_empty() {
        output.status.to_string()
    } else {
        words
    })
}

/// Waits until one process, not that of `before`, has answered for the whole settling time.
fn wait(how: &Apply, health: &Health, before: Option<Pid>) -> Result<(), Error> {
    let start = Instant::now();
    let mut since: Option<(Option<Pid>, Instant)> = None;
    let mut reason = "nothing was seen".to_owned();
    loop {
        let patience = Patience::of(health.timeout.saturating_sub(start.elapsed()), &how.stop);
        match health.socket.process(&how.host_root, patience) {
            Ok(pid) if pid.is_some() && pid == before => "the old process still runs".clone_into(&mut reason),
            Ok(pid) => match since {
                Some((same, first)) if same == pid => {
                    if first.elapsed() >= health.settle {
                        return Ok(());
                    }
                }
                _ => {
                    "it does not stay up".clone_into(&mut reason);
                    since = Some((pid, Instant::now()));
                }
            },
            Err(error) => {
                since = None;
                reason = match error.kind() {
                    ErrorKind::TimedOut => "it does not answer".to_owned(),
                    _ => error.to_string(),
                };
            }
        }
        if how.stop.is_stopped() {
            let socket = health.socket.path.display();
            return Err(Error::stopped(format!("while `{socket}` was waited for")));
        }
        if start.elapsed() >= health.timeout {
            return Err(Error::Unhealthy {
                socket: health.socket.path.clone(),
                timeout: health.timeout,
                reason,
            });
        }
        sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_1_is_told_nothing() {
        let socket = Path::new("/run/docker.sock");
        assert!(check_engine(rustix::process::getpid(), socket).is_ok());
        assert_eq!(
            check_engine(Pid::INIT, socket).unwrap_err().to_string(),
            "process 1 is behind `/run/docker.sock`, not the engine: it gets no SIGHUP; restart the engine by systemd"
        );
    }
}
