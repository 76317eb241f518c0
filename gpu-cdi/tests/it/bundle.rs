//! The hook program, and containers that are folders.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// What the program says of itself if the tests were built dynamic, as they are for GNU/Linux by default.
pub(crate) const NOT_STATIC: &str = "warning: this program is not static";

/// A bundle as runtimes lay it out, and beside it a file that no hook may touch.
pub(crate) struct Bundle {
    pub(crate) dir: tempfile::TempDir,
}

impl Bundle {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir_all(dir.path().join("bundle/rootfs")).expect("a new folder");
        fs::create_dir(dir.path().join("host")).expect("a new folder");
        fs::write(dir.path().join("host/file"), "host").expect("a new file");
        fs::write(dir.path().join("bundle/config.json"), r#"{"root": {"path": "rootfs"}}"#).expect("a new file");
        Self { dir }
    }

    pub(crate) fn host(&self) -> PathBuf {
        self.dir.path().join("host")
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("bundle/rootfs").join(path)
    }

    pub(crate) fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a new folder");
        fs::write(path, content).expect("a new file");
    }

    pub(crate) fn link(&self, path: &str, target: impl AsRef<Path>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a new folder");
        symlink(target, path).expect("a new link");
    }

    pub(crate) fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    pub(crate) fn target(&self, path: &str) -> Option<String> {
        Some(fs::read_link(self.path(path)).ok()?.to_str()?.to_owned())
    }

    pub(crate) fn state(&self) -> String {
        let bundle = self.dir.path().join("bundle");
        format!(
            r#"{{"ociVersion":"1.2.0","id":"test","status":"creating","bundle":"{}"}}"#,
            bundle.display()
        )
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        run(&mut Command::new(program()), args, &self.state())
    }

    #[track_caller]
    pub(crate) fn succeeds(&self, args: &[&str]) {
        let output = self.run(args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[track_caller]
    pub(crate) fn fails(&self, args: &[&str], code: i32, expected: &str) {
        let output = self.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
        let lines = stderr.lines().filter(|line| !line.contains(NOT_STATIC));
        assert_eq!(lines.count(), 1, "{stderr}");
    }

    /// That the host's folder holds what it did at first.
    #[track_caller]
    pub(crate) fn host_is_untouched(&self) {
        assert_eq!(entries(&self.host()), ["file"]);
        assert_eq!(
            fs::read_to_string(self.host().join("file")).expect("the host's file"),
            "host"
        );
    }
}

pub(crate) fn entries(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("a folder");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    names
        .into_iter()
        .map(|name| name.into_string().expect("UTF-8"))
        .collect()
}

/// The example that is the hook program; cargo builds it beside the tests.
pub(crate) fn program() -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let dir = test.ancestors().nth(2).expect("the profile's folder");
    let program = dir.join("examples/gpu-cdi-hook");
    assert!(
        program.exists(),
        "\nthe hook program that these tests run is not built: no `{}`.\n\
         `cargo test --test it` builds the tests alone; run `cargo test -p gpu-cdi`, or first\n\
         `cargo build -p gpu-cdi --features hook --example gpu-cdi-hook`, with the profile and target of the tests\n",
        program.display()
    );
    program
}

pub(crate) fn run(command: &mut Command, args: &[&str], state: &str) -> Output {
    let mut child = command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the hook program");
    // A hook that fails early does not read its input.
    let _ = child.stdin.take().expect("a pipe").write_all(state.as_bytes());
    child.wait_with_output().expect("its end")
}
