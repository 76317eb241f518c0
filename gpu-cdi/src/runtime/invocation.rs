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
    /// The id of the container that is made.
    pub container: Option<String>,
    /// The bundle, which holds `config.json`; `None` for the current folder.
    pub bundle: Option<PathBuf>,
    /// The configuration's file, from the bundle on, if it is another one than `config.json`: an option of crun's.
    pub config_file: Option<PathBuf>,
    /// Where the runtime's log goes, which the engine reads for the reason of a failure.
    pub log: Option<PathBuf>,
    /// Whether the log is JSON.
    pub log_is_json: bool,
    /// Whether all is to be logged: `--debug`.
    pub debug: bool,
    /// Whether the runtime is asked for its version.
    pub asks_version: bool,
}

/// Options before the sub-command that take a value in the next argument.
const GLOBAL_VALUES: [&[u8]; 5] = [b"log-level", b"root", b"criu", b"rootless", b"cgroup-manager"];

/// Options after it that do and are of no interest here.
const LOCAL_VALUES: [&[u8]; 4] = [b"console-socket", b"pid-file", b"preserve-fds", b"pidfd-socket"];

impl Invocation {
    /// Reads the arguments after the program's name.
    pub fn parse(arguments: &[OsString]) -> Self {
        let mut invocation = Self::default();
        let mut command: Option<&OsStr> = None;
        let mut container: Option<&OsStr> = None;
        let mut arguments = arguments.iter().map(OsString::as_os_str);
        while let Some(argument) = arguments.next() {
            let bytes = argument.as_bytes();
            let is_option = bytes.starts_with(b"-") && bytes != b"-";
            match command {
                None if is_option => invocation.global(bytes, &mut arguments),
                None => command = Some(argument),
                Some(_) if is_option => invocation.local(bytes, &mut arguments),
                Some(_) => container = container.or(Some(argument)),
            }
        }
        invocation.makes_container = command.is_some_and(|command| command == "create" || command == "run");
        invocation.container = container
            .filter(|_| invocation.makes_container)
            .map(|container| container.to_string_lossy().into_owned());
        invocation
    }

    /// Takes in an option before the sub-command.
    fn global<'a>(&mut self, argument: &'a [u8], rest: &mut impl Iterator<Item = &'a OsStr>) {
        let (name, inline) = option(argument);
        let mut value = || inline.or_else(|| rest.next());
        match name {
            b"log" => self.log = value().map(PathBuf::from),
            b"log-format" => self.log_is_json = value().is_some_and(|format| format == "json"),
            b"debug" => self.debug = inline.is_none_or(|value| value == "true"),
            b"version" | b"v" => self.asks_version = true,
            name if GLOBAL_VALUES.contains(&name) => drop(value()),
            _ => {}
        }
    }

    /// Takes in an option after it.
    fn local<'a>(&mut self, argument: &'a [u8], rest: &mut impl Iterator<Item = &'a OsStr>) {
        if let Some((option, value)) = attached(argument) {
            let value = Some(PathBuf::from(OsStr::from_bytes(value)));
            match option {
                b'b' => self.bundle = value,
                _ => self.config_file = value,
            }
            return;
        }
        let (name, inline) = option(argument);
        let mut value = || inline.or_else(|| rest.next());
        match name {
            b"bundle" | b"b" => self.bundle = value().map(PathBuf::from),
            b"config" | b"f" => self.config_file = value().map(PathBuf::from),
            name if LOCAL_VALUES.contains(&name) => drop(value()),
            _ => {}
        }
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

/// The name of an option and its value, if that is in the same argument. runc takes `-log` for `--log`, as Go does.
fn option(argument: &[u8]) -> (&[u8], Option<&OsStr>) {
    let name = argument.strip_prefix(b"-").unwrap_or(argument);
    let name = name.strip_prefix(b"-").unwrap_or(name);
    match name.iter().position(|byte| *byte == b'=') {
        Some(at) => (&name[..at], Some(OsStr::from_bytes(&name[at + 1..]))),
        None => (name, None),
    }
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
    fn the_container_is_the_first_word_that_belongs_to_no_option() {
        #[track_caller]
        fn check(line: &str, expected: Option<&str>) {
            let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            assert_eq!(Invocation::parse(&arguments).container.as_deref(), expected, "{line}");
        }
        check("--root /r create --bundle /b --pid-file /p name", Some("name"));
        check("run -d -b/b --console-socket=/s --preserve-fds 3 -- name", Some("name"));
        check("create -f c.json --no-pivot name --pid-file /p", Some("name"));
        check("create --bundle /b", None);
        check("delete name", None);
    }

    #[test]
    fn what_the_runtime_is_asked_besides_is_found() {
        let parse = |line: &str| Invocation::parse(&[OsString::from(line)]);
        for version in ["--version", "-version", "-v"] {
            assert!(parse(version).asks_version, "{version}");
        }
        let arguments = ["--debug", "state", "--version"].map(OsString::from);
        let invocation = Invocation::parse(&arguments);
        assert_eq!((invocation.debug, invocation.asks_version), (true, false));
        assert!(!parse("--debug=false").debug);
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
