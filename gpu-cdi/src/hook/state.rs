use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{Error, Result};

/// Most bytes that a state or a configuration may have; large pods' have some 100 KiB.
const LIMIT: u64 = 32 << 20;

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
    let (from, text) = match spec {
        Some(path) => (format!("`{}`", path.display()), gpu_core::read_bytes(path, LIMIT)),
        None => ("standard input".to_owned(), read(stdin)),
    };
    let text = text.map_err(|source| Error::ReadState { from, source })?;
    let state: State = parse("the container's state", &text)?;
    if !state.root.as_os_str().is_empty() {
        return Ok(state.bundle.join(state.root));
    }
    if !state.bundle.is_absolute() {
        return Err(malformed("the container's state", "it has no absolute `bundle`"));
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

fn read(from: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    from.take(LIMIT + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LIMIT {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("longer than {LIMIT} bytes"),
        ));
    }
    Ok(text)
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
