//! `gpu-container-runtime` as an engine calls it, in front of a low-level runtime that only tells what it got.
#![cfg(feature = "container-runtime")]

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::{Value, json};

/// A host with a CDI spec, a bundle, and a `runc` that prints its arguments.
struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    fn new(toolkit: &str) -> Self {
        let host = Self {
            dir: tempfile::tempdir().expect("a temporary folder"),
        };
        for folder in ["bin", "bundle", "cdi"] {
            fs::create_dir(host.path(folder)).expect("a new folder");
        }
        let runc = host.path("bin/runc");
        fs::write(&runc, "#!/bin/sh\necho \"$@\"\n").expect("a new file");
        fs::set_permissions(&runc, fs::Permissions::from_mode(0o755)).expect("its mode");
        let cdi = host.path("cdi");
        let toolkit = format!(
            "{toolkit}\n[nvidia-container-runtime.modes.cdi]\nspec-dirs = [\"{}\"]\n",
            cdi.display()
        );
        fs::write(host.path("config.toml"), toolkit).expect("a new file");
        let device = json!({ "name": "0", "containerEdits": { "env": ["GPU=0"] } });
        let spec = json!({ "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device] });
        fs::write(host.path("cdi/nvidia.json"), spec.to_string()).expect("a new file");
        host
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn ask(&self, variable: &str) -> String {
        let config = json!({ "ociVersion": "1.1.0", "process": { "env": [variable] } }).to_string();
        fs::write(self.path("bundle/config.json"), &config).expect("a new file");
        config
    }

    fn run(&self, arguments: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_gpu-container-runtime"))
            .args(arguments.split_whitespace())
            .current_dir(self.path("bundle"))
            .env("PATH", format!("{}:/bin", self.path("bin").display()))
            .env("NVIDIA_CTK_CONFIG_FILE_PATH", self.path("config.toml"))
            .output()
            .expect("the program runs")
    }

    fn config(&self) -> String {
        fs::read_to_string(self.path("bundle/config.json")).expect("the configuration")
    }
}

const CREATE: &str = "--root /r --log log.json --log-format json create --bundle . name";

#[test]
fn a_container_that_asks_gets_the_device_and_runc_its_arguments() {
    let host = Host::new("");
    host.ask("NVIDIA_VISIBLE_DEVICES=0");
    let output = host.run(CREATE);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), CREATE);
    let config: Value = serde_json::from_str(&host.config()).expect("JSON");
    assert_eq!(config["process"]["env"], json!(["NVIDIA_VISIBLE_DEVICES=0", "GPU=0"]));
    assert!(!host.path("bundle/log.json").exists());
}

#[test]
fn everything_else_is_left_alone() {
    let host = Host::new("accept-nvidia-visible-devices-envvar-when-unprivileged = false");
    let before = host.ask("NVIDIA_VISIBLE_DEVICES=0");
    for arguments in [CREATE, "state name", "--help", "", "kill --all name 9"] {
        let output = host.run(arguments);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), arguments);
        assert!(output.status.success());
    }
    assert_eq!(
        host.config(),
        before,
        "the environment alone is refused unless it is enabled"
    );

    let host = Host::new("");
    let before = host.ask("NVIDIA_VISIBLE_DEVICES=void");
    host.run(CREATE);
    assert_eq!(host.config(), before);
}

#[test]
fn its_version_is_told_before_the_runtimes() {
    let output = Host::new("").run("--version");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        concat!(
            "gpu-container-runtime version ",
            env!("CARGO_PKG_VERSION"),
            "\n\n--version\n"
        )
    );
}

#[test]
fn a_key_that_nothing_reads_is_told_with_its_line() {
    let host = Host::new("[nvidia-container-runtime]\ndebug = \"file.log\"\nrunime = \"crun\"\n[features]");
    host.ask("NVIDIA_VISIBLE_DEVICES=0");
    host.run("state name");
    assert!(!host.path("bundle/file.log").exists(), "once for each container");
    host.run(CREATE);
    let log = fs::read_to_string(host.path("bundle/file.log")).expect("the log");
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(
        lines,
        [
            &*format!(
                "warning: container name: `nvidia-container-runtime.runime` in line 3 of `{}` is not a known key and has no effect; \
                 did you mean `runtimes`?",
                host.path("config.toml").display()
            ),
            "info: container name: `./config.json` gets nvidia.com/gpu=0",
        ]
    );
}

#[test]
fn why_there_is_no_container_is_told_to_the_engine() {
    let host = Host::new("");
    host.ask("NVIDIA_VISIBLE_DEVICES=a=b");
    let output = host.run(CREATE);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "runc was not called");
    let log = fs::read_to_string(host.path("bundle/log.json")).expect("the log");
    let line: Value = serde_json::from_str(&log).expect("JSON");
    assert_eq!(line["level"], "error");
    let text = line["msg"].as_str().unwrap_or_default();
    assert!(
        text.starts_with("gpu-container-runtime: container name: ") && text.contains("`a` is not a CDI kind"),
        "{text}"
    );
}

#[test]
fn a_runtime_that_is_not_installed_is_named() {
    let host = Host::new("[nvidia-container-runtime]\nruntimes = [\"no-such-runtime\"]");
    let output = host.run("state name");
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error: none of the low-level runtimes no-such-runtime is installed\n"
    );
}

#[test]
fn a_pipe_in_the_place_of_the_configuration_is_not_waited_for() {
    let host = Host::new("");
    let path = host.path("bundle/config.json");
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    let output = host.run(CREATE);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.ends_with("cannot read `./config.json`: not a regular file\n"),
        "{text}"
    );
}

#[test]
fn a_pipe_in_the_place_of_a_log_stops_no_container() {
    let host = Host::new("[nvidia-container-runtime]\ndebug = \"pipe\"\nlog-level = \"debug\"");
    host.ask("NVIDIA_VISIBLE_DEVICES=0");
    let path = host.path("bundle/pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    for log in ["log.json", "pipe"] {
        let output = host.run(&format!("--log {log} create --bundle . name"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(host.config().contains("GPU=0"));
}

#[test]
fn runtimes_that_lead_back_to_this_program_are_refused() {
    #[track_caller]
    fn check(runtimes: &[(&str, &[u8])], last: &str) {
        let host = Host::new("");
        let mut paths = Vec::new();
        for (name, content) in runtimes {
            let path = host.path("bin").join(name);
            fs::write(&path, content).expect("a new file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("its mode");
            paths.push(path);
        }
        let config = host.path("config.toml");
        let text = format!("[nvidia-container-runtime]\nruntimes = {paths:?}\n");
        fs::write(&config, text).expect("the configuration");
        let output = host.run("state name");
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            format!(
                "error: `nvidia-container-runtime.runtimes` of `{}`: `{}` leads back to this program\n",
                config.display(),
                host.path("bin").join(last).display()
            )
        );
    }
    let program = env!("CARGO_BIN_EXE_gpu-container-runtime");
    let copy = fs::read(program).expect("the program");
    check(&[("a", &copy), ("b", &copy)], "a");
    check(&[("c", format!("#!/bin/sh\nexec {program} \"$@\"\n").as_bytes())], "c");
    check(&[("d", format!("#!/bin/sh\n{program} \"$@\"\n").as_bytes())], "d");
}

#[test]
fn the_configuration_that_crun_is_given_is_the_one_that_is_edited() {
    let host = Host::new("");
    host.ask("NVIDIA_VISIBLE_DEVICES=0");
    fs::rename(host.path("bundle/config.json"), host.path("bundle/other.json")).expect("another name");
    let output = host.run("create --bundle . --config other.json name");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(host.path("bundle/other.json")).expect("the configuration");
    assert!(text.contains("GPU=0"), "{text}");
}

#[test]
#[ignore = "needs root"]
fn mode_and_owner_of_the_configuration_stay() {
    let host = Host::new("");
    host.ask("NVIDIA_VISIBLE_DEVICES=0");
    let path = host.path("bundle/config.json");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("its mode");
    std::os::unix::fs::chown(&path, Some(1234), Some(55)).expect("its owner");
    assert!(host.run(CREATE).status.success());
    assert!(host.config().contains("GPU=0"));
    let status = fs::metadata(&path).expect("the file");
    assert_eq!((status.uid(), status.gid(), status.mode() & 0o7777), (1234, 55, 0o640));
}
