use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

/// A call of a low-level runtime, as far as a wrapper has to understand it.
///
/// The arguments are those of runc, and crun's are the same in this respect.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Invocation {
    /// Whether a container is made, so that its configuration counts: `create` or `run`.
    pub makes_container: bool,
    /// The bundle, which holds `config.json`; `None` for the current folder.
    pub bundle: Option<PathBuf>,
    /// The configuration's file, from the bundle on, if it is another one than `config.json`: an option of crun's.
    pub config_file: Option<PathBuf>,
    /// Where the runtime's log goes, which the engine reads for the reason of a failure.
    pub log: Option<PathBuf>,
    /// Whether the log is JSON.
    pub log_is_json: bool,
}

/// Options before the sub-command that take a value in the next argument.
const GLOBAL_VALUES: [&str; 7] = [
    "--log",
    "--log-format",
    "--log-level",
    "--root",
    "--criu",
    "--rootless",
    "--cgroup-manager",
];

impl Invocation {
    /// Reads the arguments after the program's name.
    pub fn parse(arguments: &[OsString]) -> Self {
        let mut invocation = Self::default();
        let mut command: Option<&OsStr> = None;
        let mut arguments = arguments.iter().map(OsString::as_os_str);
        while let Some(argument) = arguments.next() {
            let bytes = argument.as_bytes();
            if !bytes.starts_with(b"-") || bytes == b"-" {
                // After the sub-command the first of these is the container's name.
                command = command.or(Some(argument));
                continue;
            }
            if command.is_some()
                && let Some((option, value)) = attached(bytes)
            {
                let value = Some(PathBuf::from(OsStr::from_bytes(value)));
                match option {
                    b'b' => invocation.bundle = value,
                    _ => invocation.config_file = value,
                }
                continue;
            }
            // runc takes `-log` for `--log`, as Go does.
            let name = bytes.strip_prefix(b"-").unwrap_or(bytes);
            let name = name.strip_prefix(b"-").unwrap_or(name);
            let (name, inline) = match name.iter().position(|byte| *byte == b'=') {
                Some(at) => (&name[..at], Some(OsStr::from_bytes(&name[at + 1..]))),
                None => (name, None),
            };
            match (command.is_some(), name) {
                (true, b"bundle" | b"b") => {
                    invocation.bundle = inline.or_else(|| arguments.next()).map(PathBuf::from);
                }
                (true, b"config" | b"f") => {
                    invocation.config_file = inline.or_else(|| arguments.next()).map(PathBuf::from);
                }
                (false, b"log") => invocation.log = inline.or_else(|| arguments.next()).map(PathBuf::from),
                (false, b"log-format") => {
                    let format = inline.or_else(|| arguments.next());
                    invocation.log_is_json = format.is_some_and(|format| format == "json");
                }
                (false, name) if inline.is_none() && takes_value(name) => drop(arguments.next()),
                _ => {}
            }
        }
        invocation.makes_container = command.is_some_and(|command| command == "create" || command == "run");
        invocation
    }

    /// The container's configuration.
    pub fn config(&self) -> PathBuf {
        let file = self.config_file.as_deref().unwrap_or(Path::new("config.json"));
        self.bundle.as_deref().unwrap_or(Path::new("")).join(file)
    }
}

/// An option of one letter with its value in the same argument, as crun takes it: `-b/run/x`. runc takes `-bundle` too.
fn attached(argument: &[u8]) -> Option<(u8, &[u8])> {
    match argument {
        [b'-', option @ (b'b' | b'f'), value @ ..] if !matches!(value, [] | [b'=', ..]) => {
            let is_long = value.split(|byte| *byte == b'=').next() == Some(b"undle");
            (!is_long).then_some((*option, value))
        }
        _ => None,
    }
}

fn takes_value(name: &[u8]) -> bool {
    GLOBAL_VALUES.iter().any(|option| option.as_bytes()[2..] == *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundle_is_found_as_the_runtime_finds_it() {
        #[track_caller]
        fn check(line: &str, makes_container: bool, config: &str) {
            let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            let invocation = Invocation::parse(&arguments);
            assert_eq!(
                (invocation.makes_container, invocation.config()),
                (makes_container, PathBuf::from(config)),
                "{line}"
            );
        }
        check(
            "--root /r --log /l create --bundle /b --pid-file /p name",
            true,
            "/b/config.json",
        );
        check("--systemd-cgroup create -b /b name", true, "/b/config.json");
        check("run --bundle=/b name", true, "/b/config.json");
        check("create -bundle /b name", true, "/b/config.json");
        check("create -bundle=/b name", true, "/b/config.json");
        check("create -b/b=1 name", true, "/b=1/config.json");
        check("create -b /b --config other.json name", true, "/b/other.json");
        check("run -b/b -f/x/c.json name", true, "/x/c.json");
        check("run --config=c.json name", true, "c.json");
        check("create name", true, "config.json");
        check("--root create delete name", false, "config.json");
        check("delete --force create", false, "config.json");
        check("state create", false, "config.json");
        check("--version", false, "config.json");
        check("", false, "config.json");
    }

    #[test]
    fn the_log_is_found() {
        let arguments = [
            "--log",
            "/b/log.json",
            "--log-format=json",
            "create",
            "--log",
            "x",
            "name",
        ]
        .map(OsString::from);
        let invocation = Invocation::parse(&arguments);
        assert_eq!(invocation.log, Some(PathBuf::from("/b/log.json")));
        assert!(invocation.log_is_json);
    }
}
