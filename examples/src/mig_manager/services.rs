//! Services of the host that use GPUs, through its systemd.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

/// What the vendor's file names, where no file is given.
const USUAL: [&str; 9] = [
    "nvsm.service",
    "nvsm-mqtt.service",
    "nvsm-core.service",
    "nvsm-api-gateway.service",
    "nvsm-notifier.service",
    "nv_peer_mem.service",
    "nvidia-dcgm.service",
    "dcgm.service",
    "dcgm-exporter.service",
];
const STOP: Duration = Duration::from_secs(30);
const START: Duration = Duration::from_mins(2);

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct File {
    version: String,
    systemd_services: Vec<String>,
}

/// The services that the file names, or the usual ones.
pub(super) fn named(file: Option<&Path>) -> anyhow::Result<Vec<String>> {
    let Some(path) = file.filter(|path| !path.as_os_str().is_empty()) else {
        return Ok(USUAL.map(str::to_owned).into());
    };
    let what = || format!("cannot use the GPU clients file `{}`", path.display());
    let text = fs::read_to_string(path).with_context(what)?;
    let file: File = serde_saphyr::from_str(&text).with_context(what)?;
    if file.version != "v1" {
        bail!("{}: unknown version: {}", what(), file.version);
    }
    Ok(file.systemd_services)
}

/// The host's systemd.
#[derive(Debug, Clone, Copy)]
pub(super) struct Host<'a> {
    /// The host's root, as seen from here.
    pub(super) root: &'a Path,
}

impl Host<'_> {
    /// Those of these services that run.
    pub(super) fn active(self, services: &[String]) -> anyhow::Result<Vec<String>> {
        let mut active = Vec::new();
        for service in services {
            // Its status says "no" of what is not there, and of what has failed.
            if self.systemctl(&["is-active", "--quiet", service], STOP)? {
                active.push(service.clone());
            }
        }
        Ok(active)
    }

    pub(super) fn stop(self, service: &str) -> anyhow::Result<()> {
        self.tell(&["stop", service], STOP)
    }

    pub(super) fn start(self, service: &str) -> anyhow::Result<()> {
        self.tell(&["start", service], START)
    }

    pub(super) fn reload(self) -> anyhow::Result<()> {
        self.tell(&["daemon-reload"], STOP)
    }

    pub(super) fn reboot(self) -> anyhow::Result<()> {
        self.tell(&["reboot"], STOP)
    }

    fn tell(self, arguments: &[&str], limit: Duration) -> anyhow::Result<()> {
        let done = self.systemctl(arguments, limit)?;
        ensure!(done, "`systemctl {}` failed on the host", arguments.join(" "));
        Ok(())
    }

    /// Whether it answered yes; `timeout` ends one that waits for a systemd that does not answer.
    fn systemctl(self, arguments: &[&str], limit: Duration) -> anyhow::Result<bool> {
        let mut command = Command::new("chroot");
        command
            .arg(self.root)
            .args(["timeout", &limit.as_secs().to_string(), "systemctl"])
            .args(arguments);
        let output = command.stdin(Stdio::null()).output();
        let what = || format!("cannot run `systemctl {}` on the host", arguments.join(" "));
        let output = output.with_context(what)?;
        match output.status.code() {
            Some(124) => bail!("{}: it does not answer within {} s", what(), limit.as_secs()),
            Some(125..=127) => bail!("{}: {}", what(), String::from_utf8_lossy(&output.stderr).trim()),
            code => Ok(code == Some(0)),
        }
    }
}

/// Tells the host's own MIG manager the configuration, in the drop-in that it has; whether it has one.
pub(super) fn tell_host_manager(drop_in: &Path, value: &str) -> anyhow::Result<bool> {
    const SELECTED: &str = "MIG_PARTED_SELECTED_CONFIG=";
    let what = || format!("cannot write `{}`", drop_in.display());
    let text = match fs::read_to_string(drop_in) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error).with_context(what),
    };
    let ours = |line: &&str| {
        let names = [SELECTED, "MIG_PARTED_CONFIG_FILE=", "MIG_PARTED_HOOKS_FILE="];
        !names.iter().any(|name| line.contains(name))
    };
    let mut lines: Vec<_> = text.lines().filter(ours).map(str::to_owned).collect();
    if !lines.iter().any(|line| line.trim() == "[Service]") {
        lines.insert(0, "[Service]".to_owned());
    }
    let at = lines
        .iter()
        .position(|line| line.trim() == "[Service]")
        .map_or(0, |at| at + 1);
    lines.insert(at, format!("Environment=\"{SELECTED}{value}\""));
    let new = lines.join("\n") + "\n";
    if new == text {
        return Ok(true);
    }
    let temporary = drop_in.with_extension("conf.new");
    fs::write(&temporary, new)
        .and_then(|()| fs::rename(&temporary, drop_in))
        .with_context(what)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_manager_is_told_once_and_keeps_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("override.conf");
        assert!(!tell_host_manager(&file, "x").unwrap());
        fs::write(
            &file,
            "[Service]\nEnvironment=\"MIG_PARTED_CONFIG_FILE=/a\"\nEnvironment=\"OTHER=1\"\n",
        )
        .unwrap();
        assert!(tell_host_manager(&file, "all-1g.10gb").unwrap());
        let expected = "[Service]\nEnvironment=\"MIG_PARTED_SELECTED_CONFIG=all-1g.10gb\"\nEnvironment=\"OTHER=1\"\n";
        assert_eq!(fs::read_to_string(&file).unwrap(), expected);
        assert!(tell_host_manager(&file, "all-1g.10gb").unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), expected);
    }

    #[test]
    fn the_clients_file_is_read_and_a_mistake_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("clients.yaml");
        fs::write(&file, "version: v1\nsystemd-services: [a.service]\n").unwrap();
        assert_eq!(named(Some(&file)).unwrap(), ["a.service"]);
        fs::write(&file, "version: v1\nsystemd: [a.service]\n").unwrap();
        assert!(format!("{:#}", named(Some(&file)).unwrap_err()).contains("systemd"));
        assert_eq!(named(None).unwrap().len(), 9);
    }
}
