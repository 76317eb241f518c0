use std::{
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Deserializer;

use super::{Error, Result};

/// Most bytes that a state or a configuration may have; large pods' have some 100 KiB.
const LIMIT: u64 = 32 << 20;

const STATE: &str = "the container's state";

/// The part of an OCI container state that hooks need.
#[derive(Deserialize)]
struct State {
    #[serde(default)]
    bundle: PathBuf,
    /// An addition of crun's, which spares reading the configuration: a user namespace may not be allowed to.
    #[serde(default)]
    root: PathBuf,
}

#[derive(Deserialize)]
struct Configuration {
    root: Option<ConfiguredRoot>,
}

#[derive(Deserialize)]
struct ConfiguredRoot {
    path: PathBuf,
}

/// The path of the container's root on the host, from the state in `spec`, or on `stdin` if `None`.
pub(super) fn container_root(spec: Option<&Path>, stdin: impl Read) -> Result<PathBuf> {
    let state = match spec {
        Some(path) => {
            let from = format!("`{}`", path.display());
            let text = gpu_core::read_bytes(path, LIMIT).map_err(|source| Error::ReadState { from, source })?;
            parse(STATE, &text)?
        }
        None => read(stdin)?,
    };
    if !state.root.as_os_str().is_empty() {
        return Ok(state.bundle.join(state.root));
    }
    if !state.bundle.is_absolute() {
        return Err(malformed(STATE, "it has no absolute `bundle`"));
    }
    let path = state.bundle.join("config.json");
    let text = gpu_core::read_bytes(&path, LIMIT);
    let text = text.map_err(Error::io(format!(
        "read the container's configuration `{}`",
        path.display()
    )))?;
    let what = format!("the container's configuration `{}`", path.display());
    let configuration: Configuration = parse(&what, &text)?;
    match configuration.root {
        Some(root) if !root.path.as_os_str().is_empty() => Ok(state.bundle.join(root.path)),
        _ => Err(malformed(&what, "it has no `root.path`")),
    }
}

/// Reads no further than the state goes: who writes it may keep the pipe open.
fn read(stdin: impl Read) -> Result<State> {
    let mut stdin = BufReader::new(stdin.take(LIMIT));
    let state = State::deserialize(&mut Deserializer::from_reader(&mut stdin));
    state.map_err(|error| {
        let source = if stdin.get_ref().limit() == 0 {
            io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {LIMIT} bytes"))
        } else if error.is_io() {
            error.into()
        } else {
            return malformed(STATE, &error.to_string());
        };
        let from = "standard input".to_owned();
        Error::ReadState { from, source }
    })
}

fn parse<'a, T: Deserialize<'a>>(what: &str, text: &'a [u8]) -> Result<T> {
    serde_json::from_slice(text).map_err(|error| malformed(what, &error.to_string()))
}

fn malformed(what: &str, reason: &str) -> Error {
    Error::Malformed {
        what: what.to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, FileType, Mode};

    use super::*;

    #[test]
    fn the_root_is_that_of_the_bundles_configuration() {
        #[track_caller]
        fn check(bundle: &Path, configuration: &str, state: &str, expected: &Path) {
            fs::write(bundle.join("config.json"), configuration).unwrap();
            let state = state.replace("BUNDLE", bundle.to_str().unwrap());
            assert_eq!(container_root(None, state.as_bytes()).unwrap(), expected);
        }
        let bundle = tempfile::tempdir().unwrap();
        let bundle = bundle.path();
        let state = r#"{"ociVersion": "1.0.2", "id": "a", "status": "creating", "pid": 1, "bundle": "BUNDLE"}"#;
        check(bundle, r#"{"root": {"path": "rootfs"}}"#, state, &bundle.join("rootfs"));
        check(
            bundle,
            r#"{"root": {"path": "/run/rootfs", "readonly": true}}"#,
            state,
            Path::new("/run/rootfs"),
        );
        let crun = r#"{"bundle": "BUNDLE", "root": "/run/other"}"#;
        check(bundle, "not read", crun, Path::new("/run/other"));
    }

    #[test]
    fn nothing_is_read_after_the_state() {
        struct Open;
        impl Read for Open {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                panic!("nobody will write any more, nor close it")
            }
        }
        let state = br#"{"bundle": "/b", "root": "r", "annotations": {"a": "}"}}"#;
        for end in ["", "\n", " {"] {
            let stdin = state.chain(end.as_bytes()).chain(Open);
            assert_eq!(container_root(None, stdin).unwrap(), Path::new("/b/r"));
        }
    }

    #[test]
    fn a_state_that_does_not_end_or_cannot_be_read_is_refused() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("broken"))
            }
        }
        #[track_caller]
        fn check(stdin: impl Read, expected: &str) {
            let error = container_root(None, stdin).unwrap_err();
            assert_eq!(
                error.to_string(),
                "cannot read the container's state from standard input"
            );
            assert_eq!(std::error::Error::source(&error).unwrap().to_string(), expected);
        }
        check(io::repeat(b' '), "longer than 33554432 bytes");
        check(b"{".chain(Broken), "broken");
    }

    #[test]
    fn a_state_without_a_root_is_refused_with_the_reason() {
        #[track_caller]
        fn check(state: &str, expected: &str) {
            let error = container_root(None, state.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        check("", "the container's state is not valid: EOF while parsing");
        check("{", "the container's state is not valid: EOF while parsing");
        check("{}", "it has no absolute `bundle`");
        check(r#"{"bundle": "a"}"#, "it has no absolute `bundle`");
        let bundle = tempfile::tempdir().unwrap();
        let pipe = bundle.path().join("config.json");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let error = container_root(
            None,
            format!(r#"{{"bundle": "{}"}}"#, bundle.path().display()).as_bytes(),
        );
        let error = std::error::Error::source(&error.unwrap_err()).unwrap().to_string();
        assert_eq!(error, "not a regular file", "and nobody waits for a pipe");
        check(
            r#"{"bundle": "/nonexistent"}"#,
            "cannot read the container's configuration `/nonexistent/config.json`",
        );
    }
}
