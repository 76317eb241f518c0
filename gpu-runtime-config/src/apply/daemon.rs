//! Which containerd runs on a node.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::{
    Socket, Stop,
    patience::Patience,
    program::{on_host, run},
};
use crate::containerd::Version;

/// How long a program may take to tell its version.
const LIMIT: Duration = Duration::from_secs(5);

/// The version of the containerd that listens on a socket, or of `executable` if one is given; `None` if it cannot be told.
///
/// It is asked of the very program that listens: a node may well have another containerd in its `PATH`, e.g. Docker's.
/// That needs the host's process ids. One that tells nothing within five seconds is not waited for.
pub fn containerd_version(host_root: &Path, socket: &Path, executable: Option<&Path>, stop: &Stop) -> Option<Version> {
    let executable = match executable {
        Some(path) => path.to_owned(),
        None => running(host_root, socket, stop)?,
    };
    let on_host = on_host(host_root, &executable);
    // Without `chroot`, one that is static runs from here as well.
    let from_here = Command::new(host_root.join(executable.strip_prefix("/").ok()?));
    [on_host, from_here].into_iter().find_map(|mut command| {
        command.arg("--version");
        let output = run(command, Patience::of(LIMIT, stop)).ok()?;
        version(&String::from_utf8_lossy(&output.stdout))
    })
}

/// The program behind a socket. One that was replaced while it runs is what a restart will start.
fn running(host_root: &Path, socket: &Path, stop: &Stop) -> Option<PathBuf> {
    let pid = Socket::own(socket)
        .process(host_root, Patience::of(LIMIT, stop))
        .ok()??;
    let link = format!("/proc/{}/exe", pid.as_raw_nonzero());
    let path = fs::read_link(link).ok()?.into_os_string().into_string().ok()?;
    Some(PathBuf::from(path.trim_end_matches(" (deleted)")))
}

/// The version in `containerd github.com/containerd/containerd/v2 v2.3.7 …`.
fn version(text: &str) -> Option<Version> {
    text.split_whitespace().find_map(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_among_the_words() {
        #[track_caller]
        fn check(text: &str, expected: Option<&str>) {
            assert_eq!(version(text).map(|version| version.to_string()).as_deref(), expected);
        }
        check(
            "containerd github.com/containerd/containerd/v2 v2.3.7 301026e5",
            Some("2.3"),
        );
        check(
            "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+b1\n",
            Some("1.6"),
        );
        check("containerd version unknown", None);
        check("", None);
    }
}
