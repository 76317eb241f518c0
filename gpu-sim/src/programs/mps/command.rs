//! The commands of the front end, as text.

use std::time::Duration;

/// What a line asks for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Command {
    GetServerList,
    StartServer {
        uid: u32,
    },
    ShutdownServer {
        server: u32,
        force: bool,
    },
    GetServerStatus(u32),
    GetClientList(u32),
    GetDefaultPercentage,
    SetDefaultPercentage(Percentage),
    GetPercentage(u32),
    SetPercentage(u32, Percentage),
    GetDefaultMemoryLimit(Gpu),
    SetDefaultMemoryLimit(Gpu, MemoryLimit),
    /// With the longest that servers may take.
    Quit(Option<Duration>),
}

/// Of the GPU's threads; above 0, at most 100. Written with one decimal, as the vendor's daemon does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Percentage(f64);

/// A GPU by index or UUID; which there are, the daemon does not know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gpu {
    Index(u32),
    Uuid(String),
}

/// An amount of memory: `10240M`, `10G`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryLimit {
    pub(super) bytes: u64,
}

impl Percentage {
    pub(super) const ALL: Self = Self(100.0);

    fn parse(text: &str) -> Result<Self, String> {
        let value = text.parse().ok().filter(|value| *value > 0.0 && *value <= 100.0);
        value
            .map(Self)
            .ok_or_else(|| format!("`{text}` is no percentage above 0 and up to 100"))
    }
}

impl std::fmt::Display for Percentage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:.1}", self.0)
    }
}

impl Gpu {
    fn parse(text: &str) -> Result<Self, String> {
        if let Ok(index) = text.parse() {
            Ok(Self::Index(index))
        } else if text.starts_with("GPU-") || text.starts_with("MIG-") {
            Ok(Self::Uuid(text.to_owned()))
        } else {
            Err(format!("`{text}` is neither the index nor the UUID of a GPU"))
        }
    }
}

impl std::fmt::Display for Gpu {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Index(index) => write!(formatter, "{index}"),
            Self::Uuid(uuid) => formatter.write_str(uuid),
        }
    }
}

impl MemoryLimit {
    fn parse(text: &str) -> Result<Self, String> {
        let (number, unit) = match text.strip_suffix(['G', 'g']) {
            Some(number) => (number, 1 << 30),
            None => (text.strip_suffix(['M', 'm']).unwrap_or(text), 1 << 20),
        };
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
        bytes
            .filter(|bytes| *bytes > 0)
            .map(|bytes| Self { bytes })
            .ok_or_else(|| format!("`{text}` is no amount of memory such as 10240M or 10G"))
    }
}

impl std::fmt::Display for MemoryLimit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}M", self.bytes >> 20)
    }
}

impl Command {
    /// The command of a line; what is wrong with it, if it is none.
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let server = |text: &str| number(text, "a server's PID");
        Ok(match words.as_slice() {
            ["get_server_list"] => Self::GetServerList,
            ["start_server", "-uid", uid] => Self::StartServer {
                uid: number(uid, "a user's number")?,
            },
            ["shutdown_server", pid] => Self::ShutdownServer {
                server: server(pid)?,
                force: false,
            },
            ["shutdown_server", pid, "-f"] => Self::ShutdownServer {
                server: server(pid)?,
                force: true,
            },
            ["get_server_status", pid] => Self::GetServerStatus(server(pid)?),
            ["get_client_list", pid] => Self::GetClientList(server(pid)?),
            ["get_default_active_thread_percentage"] => Self::GetDefaultPercentage,
            ["set_default_active_thread_percentage", value] => Self::SetDefaultPercentage(Percentage::parse(value)?),
            ["get_active_thread_percentage", pid] => Self::GetPercentage(server(pid)?),
            ["set_active_thread_percentage", pid, value] => {
                Self::SetPercentage(server(pid)?, Percentage::parse(value)?)
            }
            ["get_default_device_pinned_mem_limit", gpu] => Self::GetDefaultMemoryLimit(Gpu::parse(gpu)?),
            ["set_default_device_pinned_mem_limit", gpu, value] => {
                Self::SetDefaultMemoryLimit(Gpu::parse(gpu)?, MemoryLimit::parse(value)?)
            }
            ["quit"] => Self::Quit(None),
            ["quit", "-t", seconds] => {
                let seconds = number(seconds, "a number of seconds")?;
                Self::Quit(Some(Duration::from_secs(seconds.into())))
            }
            _ => {
                return Err(format!(
                    "Unknown command or arguments that do not fit: `{}`",
                    line.trim()
                ));
            }
        })
    }
}

fn number(text: &str, what: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is not {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Result<Command, &str>) {
        assert_eq!(Command::parse(line), expected.map_err(str::to_owned), "{line}");
    }

    #[test]
    fn the_commands_of_the_device_plugins_daemon_are_understood() {
        let limit = MemoryLimit { bytes: 10 << 30 };
        check(
            "set_default_device_pinned_mem_limit 1 10240M",
            Ok(Command::SetDefaultMemoryLimit(Gpu::Index(1), limit)),
        );
        check(
            "set_default_device_pinned_mem_limit GPU-1 10G",
            Ok(Command::SetDefaultMemoryLimit(Gpu::Uuid("GPU-1".to_owned()), limit)),
        );
        check(
            " set_default_active_thread_percentage  25 ",
            Ok(Command::SetDefaultPercentage(Percentage(25.0))),
        );
        check(
            "get_default_active_thread_percentage",
            Ok(Command::GetDefaultPercentage),
        );
        check("start_server -uid 1000", Ok(Command::StartServer { uid: 1000 }));
        check("quit -t 5", Ok(Command::Quit(Some(Duration::from_secs(5)))));
        check("quit", Ok(Command::Quit(None)));
    }

    #[test]
    fn what_is_no_command_is_refused_with_what_is_wrong() {
        for value in ["0", "-1", "100.5", "NaN", "inf", "half"] {
            let expected = format!("`{value}` is no percentage above 0 and up to 100");
            check(&format!("set_default_active_thread_percentage {value}"), Err(&expected));
        }
        for value in ["0M", "18446744073709551615G", "M", "1T", "-1M"] {
            let expected = format!("`{value}` is no amount of memory such as 10240M or 10G");
            check(
                &format!("set_default_device_pinned_mem_limit 0 {value}"),
                Err(&expected),
            );
        }
        check(
            "set_default_device_pinned_mem_limit nvidia0 1G",
            Err("`nvidia0` is neither the index nor the UUID of a GPU"),
        );
        check("get_server_status me", Err("`me` is not a server's PID"));
        check(
            "start_server 1000",
            Err("Unknown command or arguments that do not fit: `start_server 1000`"),
        );
    }
}
