//! How the engine is made to read its files, and how it shows that it lives.

use std::time::Duration;

use clap::ValueEnum;
use gpu_runtime_config::{
    Preset, Reload,
    apply::{Health, Restart},
};

use super::arguments::Arguments;
use crate::engine::{Engine, Target};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum RestartMode {
    /// SIGHUP to the process behind the socket
    Signal,
    /// `systemctl restart`
    Systemd,
    /// Somebody else does it
    None,
}

/// How long an engine has to stay up.
const SETTLE: Duration = Duration::from_secs(2);

/// The restart that was asked for or is usual, and what is looked at afterwards; nothing where somebody else restarts it.
pub(super) fn restart(arguments: &Arguments, target: &Target) -> anyhow::Result<(Restart, Option<Health>)> {
    let socket = target.engine.socket_at(arguments.socket_on_host(target)?);
    let reload = target.preset.map(Preset::reload);
    let own_unit = || Restart::Systemd {
        units: vec![target.engine.name().to_owned()],
    };
    let restart = match (arguments.restart_mode, reload) {
        (Some(RestartMode::None), _) => return Ok((Restart::None, None)),
        (None, Some(Reload::Watched)) => Restart::None,
        (Some(RestartMode::Systemd), Some(Reload::Units(units))) => Restart::Systemd {
            units: units.iter().map(|unit| (*unit).to_owned()).collect(),
        },
        (Some(RestartMode::Systemd), _) => own_unit(),
        (None, _) if target.engine == Engine::Crio => own_unit(),
        (Some(RestartMode::Signal) | None, _) => Restart::Signal { socket: socket.clone() },
    };
    let health = Health {
        socket,
        timeout: Duration::from_secs(arguments.restart_timeout),
        settle: SETTLE,
        // Docker reads its file again without ending.
        new_process: target.engine != Engine::Docker || matches!(restart, Restart::Systemd { .. }),
    };
    Ok((restart, Some(health)))
}

/// What a run would do, in words.
pub(super) fn announcement(engine: &str, restart: &Restart, health: Option<&Health>) -> String {
    let Some(health) = health else {
        return format!("would not restart {engine}: somebody else does it\n");
    };
    let restart = match restart {
        Restart::Systemd { units } => format!("restart {engine} by systemd (`{}`)", units.join("` or `")),
        Restart::Signal { socket } => format!("send SIGHUP to {engine} behind `{}`", socket.path.display()),
        _ => format!("not restart {engine}, which watches its files"),
    };
    let timeout = health.timeout.as_secs();
    format!("would {restart}, and put the old files back if it does not live within {timeout} s\n")
}

#[cfg(test)]
mod tests {
    use gpu_runtime_config::apply::Socket;

    use super::*;

    #[test]
    fn an_engine_is_restarted_and_looked_at_as_its_distribution_has_it() {
        #[track_caller]
        fn check(flags: &[&str], expected: Restart, socket: Socket, new_process: bool) {
            let host = tempfile::tempdir().unwrap();
            let root = format!("--host-root={}", host.path().display());
            let arguments = Arguments::of(&[flags, &[root.as_str()]].concat()).unwrap();
            let (found, health) = restart(&arguments, &arguments.target().unwrap()).unwrap();
            let health = health.unwrap();
            assert_eq!(
                (found, health.socket, health.new_process),
                (expected, socket, new_process)
            );
        }
        let units = |units: &[&str]| Restart::Systemd {
            units: units.iter().map(|unit| (*unit).to_owned()).collect(),
        };
        let k3s = Socket::own("/run/k3s/containerd/containerd.sock");
        check(
            &["--runtime=containerd", "--preset=k3s", "--restart-mode=systemd"],
            units(&["k3s.service", "k3s-agent.service"]),
            k3s.clone(),
            true,
        );
        let signal = |socket: &Socket| Restart::Signal { socket: socket.clone() };
        check(&["--runtime=containerd", "--preset=k3s"], signal(&k3s), k3s, true);
        let k0s = Socket::own("/run/k0s/containerd.sock");
        check(&["--runtime=containerd", "--preset=k0s"], Restart::None, k0s, true);
        let docker = Socket::http("/var/run/docker.sock");
        check(&["--runtime=docker"], signal(&docker), docker.clone(), false);
        check(
            &["--runtime=docker", "--restart-mode=systemd"],
            units(&["docker"]),
            docker,
            true,
        );
        let crio = Socket::own("/var/run/crio/crio.sock");
        check(&["--runtime=crio"], units(&["crio"]), crio, true);
    }

    #[test]
    fn what_would_be_done_is_said_in_words() {
        let socket = Socket::own("/run/k3s/containerd/containerd.sock");
        let health = Health {
            socket: socket.clone(),
            timeout: Duration::from_mins(1),
            settle: SETTLE,
            new_process: true,
        };
        let check = |restart: Restart, expected: &str| {
            let end = ", and put the old files back if it does not live within 60 s\n";
            let words = announcement("containerd", &restart, Some(&health));
            assert_eq!(words, format!("would {expected}{end}"));
        };
        let units = ["k3s.service", "k3s-agent.service"].map(str::to_owned).to_vec();
        check(
            Restart::Systemd { units },
            "restart containerd by systemd (`k3s.service` or `k3s-agent.service`)",
        );
        check(
            Restart::Signal { socket },
            "send SIGHUP to containerd behind `/run/k3s/containerd/containerd.sock`",
        );
        check(Restart::None, "not restart containerd, which watches its files");
        assert_eq!(
            announcement("crio", &Restart::None, None),
            "would not restart crio: somebody else does it\n"
        );
    }
}
