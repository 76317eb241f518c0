//! The service's configuration file: lines `KEY=VALUE`, and comments.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use super::failure::Failure;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Config {
    /// Default: yes.
    pub(super) daemonize: bool,
    /// Where it listens for other nodes. Default: all addresses, port 50000.
    pub(super) ip: IpAddr,
    pub(super) port: u16,
    /// Which nodes there are. Default: `/etc/nvidia-imex/nodes_config.cfg`.
    pub(super) nodes: PathBuf,
    /// Default: `/var/log/nvidia-imex.log`.
    pub(super) log: PathBuf,
    /// Where it answers commands, if it does. Default: it does not; if it does, on 127.0.0.1, port 50005.
    pub(super) command: Option<SocketAddr>,
    /// Whether all nodes have to be there before it is ready. Default: yes.
    pub(super) wait_for_all: bool,
    /// Keys that are not simulated.
    pub(super) others: Vec<String>,
}

impl Config {
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(Failure::read(path))?;
        Self::parse(&text).map_err(|(line, message)| Failure::Config {
            path: path.to_owned(),
            line,
            message,
        })
    }

    /// What is wrong comes with its line.
    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut config = Self {
            daemonize: true,
            ip: Ipv4Addr::UNSPECIFIED.into(),
            port: 50_000,
            nodes: "/etc/nvidia-imex/nodes_config.cfg".into(),
            log: "/var/log/nvidia-imex.log".into(),
            command: None,
            wait_for_all: true,
            others: Vec::new(),
        };
        let (mut enabled, mut command) = (false, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 50_005));
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let broken = |message: String| (at + 1, message);
            let (key, value) = line
                .split_once('=')
                .ok_or_else(|| broken(format!("`{line}` is not KEY=VALUE")))?;
            let (key, value) = (key.trim(), value.trim());
            let not = |what: &str| broken(format!("{key}: `{value}` is not {what}"));
            let flag = || match value {
                "0" => Ok(false),
                "1" => Ok(true),
                _ => Err(not("0 or 1")),
            };
            let port = || value.parse().map_err(|_| not("a port"));
            let ip = || value.parse().map_err(|_| not("an IP address"));
            match key {
                "DAEMONIZE" => config.daemonize = flag()?,
                "SERVER_PORT" => config.port = port()?,
                "BIND_INTERFACE_IP" if !value.is_empty() => config.ip = ip()?,
                "IMEX_NODE_CONFIG_FILE" => config.nodes = value.into(),
                "LOG_FILE_NAME" => config.log = value.into(),
                "IMEX_CMD_ENABLED" => enabled = flag()?,
                "IMEX_CMD_PORT" => command.set_port(port()?),
                "IMEX_CMD_BIND_INTERFACE_IP" if !value.is_empty() => command.set_ip(ip()?),
                "IMEX_WAIT_FOR_QUORUM" => {
                    config.wait_for_all = match value {
                        "FULL" => true,
                        "RECOVERY" | "NONE" => false,
                        _ => return Err(not("FULL, RECOVERY or NONE")),
                    }
                }
                "BIND_INTERFACE_IP" | "IMEX_CMD_BIND_INTERFACE_IP" => {}
                other => config.others.push(other.to_owned()),
            }
        }
        config.command = enabled.then_some(command);
        Ok(config)
    }
}

/// The names or addresses in a file of nodes, one a line.
pub(super) fn nodes(path: &Path) -> Result<Vec<String>, Failure> {
    let text = fs::read_to_string(path).map_err(Failure::read(path))?;
    let nodes: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    if nodes.is_empty() {
        return Err(Failure::NoNodes(path.to_owned()));
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_compute_domain_writes_is_understood() {
        let config = Config::parse(
            "# comment\nDAEMONIZE=0\nSERVER_PORT=50001\nIMEX_NODE_CONFIG_FILE=/imexd/nodes.cfg\nIMEX_CMD_ENABLED=1\n\
             IMEX_CMD_PORT = 50006\nIMEX_CMD_BIND_INTERFACE_IP=10.0.0.1\nBIND_INTERFACE_IP=\nIMEX_WAIT_FOR_QUORUM=RECOVERY\n\
             IMEX_ENABLE_AUTH_ENCRYPTION=0\n",
        )
        .unwrap();
        assert!(!config.daemonize && !config.wait_for_all);
        assert_eq!((config.port, config.nodes.to_str()), (50_001, Some("/imexd/nodes.cfg")));
        assert_eq!(config.command, Some("10.0.0.1:50006".parse().unwrap()));
        assert_eq!(config.others, ["IMEX_ENABLE_AUTH_ENCRYPTION"]);
    }

    #[test]
    fn what_is_broken_is_named_with_its_line() {
        #[track_caller]
        fn check(text: &str, line: usize, message: &str) {
            assert_eq!(Config::parse(text), Err((line, message.to_owned())));
        }
        check("\nDAEMONIZE=yes", 2, "DAEMONIZE: `yes` is not 0 or 1");
        check("SERVER_PORT=65536", 1, "SERVER_PORT: `65536` is not a port");
        check(
            "BIND_INTERFACE_IP=here",
            1,
            "BIND_INTERFACE_IP: `here` is not an IP address",
        );
        check(
            "IMEX_WAIT_FOR_QUORUM=SOME",
            1,
            "IMEX_WAIT_FOR_QUORUM: `SOME` is not FULL, RECOVERY or NONE",
        );
        check("IMEX", 1, "`IMEX` is not KEY=VALUE");
    }
}
