//! Restarting an engine and seeing whether it lives.

use std::{
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{Apply, Error, host_path::resolve};

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
        socket: PathBuf,
    },
}

/// When an engine counts as alive: its socket accepts connections of the same process for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The engine's socket.
    pub socket: PathBuf,
    /// How long to wait for it.
    pub timeout: Duration,
    /// How long it has to stay, because an engine that dislikes its file may end only after it has opened its socket.
    pub settle: Duration,
    /// Whether the restart must give another process: not for Docker by signal.
    pub new_process: bool,
}

const PAUSE: Duration = Duration::from_millis(100);

pub(super) fn restart_and_check(how: &Apply) -> Result<(), Error> {
    let before = how
        .health
        .as_ref()
        .and_then(|health| peer(&how.host_root, &health.socket).ok());
    restart(&how.host_root, &how.restart)?;
    let Some(health) = &how.health else { return Ok(()) };
    let replaced = health.new_process && how.restart != Restart::None;
    wait(&how.host_root, health, before.flatten().filter(|_| replaced))
}

fn restart(root: &Path, restart: &Restart) -> Result<(), Error> {
    match restart {
        Restart::None => Ok(()),
        Restart::Systemd { units } => {
            let active = |unit: &&String| systemctl(root, &["is-active", "--quiet", unit]).is_ok();
            let unit = units.iter().find(active).or(units.first());
            let unit = unit.ok_or_else(|| failed("systemd", "no unit is named".to_owned()))?;
            systemctl(root, &["restart", unit]).map_err(|reason| failed(&format!("`systemctl restart {unit}`"), reason))
        }
        Restart::Signal { socket } => {
            let method = format!("SIGHUP to the process behind `{}`", socket.display());
            // An engine that does not run reads its files when it is started.
            let Ok(pid) = peer(root, socket) else { return Ok(()) };
            let pid = pid.ok_or_else(|| failed(&method, "it is in another process namespace".to_owned()))?;
            kill_process(pid, Signal::HUP).map_err(|error| failed(&method, error.to_string()))
        }
    }
}

fn failed(method: &str, reason: String) -> Error {
    Error::Restart {
        method: method.to_owned(),
        reason,
    }
}

/// A program of the host, run in the host's root.
pub(super) fn on_host(root: &Path, program: &Path) -> Command {
    if root == Path::new("/") {
        return Command::new(program);
    }
    let mut command = Command::new("chroot");
    command.arg(root).arg(program);
    command
}

/// Runs the host's systemctl; its last words if it fails.
fn systemctl(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let mut command = on_host(root, Path::new("systemctl"));
    let output = command.args(arguments).output().map_err(|error| error.to_string())?;
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

/// The process that listens on a socket; `None` if it is in a process namespace that is not visible from here.
pub(super) fn peer(root: &Path, socket: &Path) -> Result<Option<Pid>, String> {
    let path = resolve(root, socket).map_err(|error| error.to_string())?;
    let stream = UnixStream::connect(path).map_err(|error| error.to_string())?;
    let credentials = rustix::net::sockopt::socket_peercred(&stream).map_err(|error| error.to_string())?;
    Ok(Some(credentials.pid).filter(|pid| pid.as_raw_nonzero().get() > 0))
}

/// Waits until one process, not that of `before`, has answered for the whole settling time.
fn wait(root: &Path, health: &Health, before: Option<Pid>) -> Result<(), Error> {
    let start = Instant::now();
    let mut since: Option<(Option<Pid>, Instant)> = None;
    let mut reason = "nothing was seen".to_owned();
    loop {
        match peer(root, &health.socket) {
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
                reason = error;
            }
        }
        if start.elapsed() >= health.timeout {
            return Err(Error::Unhealthy {
                socket: health.socket.clone(),
                timeout: health.timeout,
                reason,
            });
        }
        sleep(PAUSE);
    }
}
