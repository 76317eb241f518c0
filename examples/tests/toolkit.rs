//! `gpu-toolkit` on a host that is a folder: no engine runs there, and none is restarted.
#![cfg(feature = "toolkit")]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::MetadataExt as _,
        net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use gpu_sim::{Node, NodeSpec};
use rustix::process::{Pid, Signal, kill_process};

const MAIN: &str = "# mine\nversion = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]\nruntime_type = 'io.containerd.runc.v2'\noptions = { BinaryName = '/opt/runc', SystemdCgroup = true }\n";

struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let host = Self {
            dir: tempfile::tempdir().expect("a temporary folder"),
        };
        for folder in ["host/etc/containerd", "programs"] {
            fs::create_dir_all(host.path(folder)).expect("a new folder");
        }
        fs::write(host.path("host/etc/containerd/config.toml"), MAIN).expect("a new file");
        for name in ["gpu-container-runtime", "gpu-cdi-hook", "gpuctl"] {
            fs::write(host.path("programs").join(name), name).expect("a new file");
        }
        host
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    /// All that there is, with what would tell that it was touched.
    fn tree(&self) -> BTreeMap<PathBuf, (u64, i64, i64, u64)> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.path("")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)
                .expect("a folder")
                .map(|entry| entry.expect("an entry"))
            {
                let status = entry.metadata().expect("an entry");
                if status.is_dir() {
                    folders.push(entry.path());
                }
                let signs = (status.ino(), status.mtime(), status.mtime_nsec(), status.len());
                found.insert(entry.path(), signs);
            }
        }
        found
    }

    fn toolkit(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-toolkit"));
        command
            .env_clear()
            .env("ROOT", self.path("nvidia"))
            .env("TOOLKIT_SOURCE_ROOT", self.path("programs"))
            .env("TOOLKIT_PID_FILE", self.path("toolkit.pid"))
            .env("HOST_ROOT_MOUNT", self.path("host"))
            .env("RUNTIME", "containerd")
            .env("RUNTIME_RESTART_MODE", "none")
            .env("CREATE_DEVICE_NODES", "none");
        command
    }

    /// A toolkit that has set up the node; what it says is in [`log`](Self::log).
    fn daemon(&self) -> Daemon {
        let daemon = self.starting(&[]);
        wait_for("the node is set up", || self.log().contains("waiting for SIGTERM"));
        daemon
    }

    /// The same, at its start.
    fn starting(&self, arguments: &[&str]) -> Daemon {
        let child = self.toolkit().args(arguments).stderr(self.new_log()).spawn();
        Daemon(child.expect("the program runs"))
    }

    fn new_log(&self) -> fs::File {
        fs::File::create(self.path("log")).expect("a new file")
    }

    fn log(&self) -> String {
        self.text("log").unwrap_or_default()
    }
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(10), "not within 10 s: {what}");
        sleep(Duration::from_millis(20));
    }
}

/// A daemon that does not outlive its test.
struct Daemon(Child);

impl Daemon {
    fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("the program runs");
    }

    /// Its exit code.
    #[track_caller]
    fn end_within(&mut self, limit: Duration) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("its state") {
                return status.code();
            }
            assert!(start.elapsed() < limit, "it runs for more than {limit:?}");
            sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_node_is_set_up_once_and_given_back_at_the_end() {
    let host = Host::new();
    let set_up = |arguments: &[&str]| {
        let output = host.toolkit().args(arguments).output().expect("the program runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let diff = set_up(&["--dry-run"]);
    assert!(
        diff.contains("nvidia-container-runtime.cdi") && diff.contains("+++"),
        "{diff}"
    );
    assert!(!host.path("nvidia").exists());

    set_up(&["--no-daemon"]);
    let main = host.text("host/etc/containerd/config.toml").expect("the main file");
    let runtime = host.path("nvidia/toolkit/nvidia-container-runtime");
    assert!(main.starts_with(MAIN.lines().next().expect("a line")), "{main}");
    assert!(main.contains(&format!("\"{}\"", runtime.display())), "{main}");
    assert!(
        main.contains("default_runtime_name = \"nvidia\""),
        "the vendor's default: {main}"
    );
    let config = host
        .text("nvidia/toolkit/.config/nvidia-container-runtime/config.toml")
        .expect("its file");
    assert!(
        config.contains("runtimes = [\"/opt/runc\", \"runc\", \"crun\"]"),
        "{config}"
    );
    assert!(config.contains("root = \"/run/nvidia/driver\""), "{config}");

    let identity = |path: &str| {
        let status = fs::metadata(host.path(path)).expect("a file");
        (status.ino(), status.mtime_nsec())
    };
    let paths = [
        "host/etc/containerd/config.toml",
        "nvidia/toolkit/nvidia-container-runtime",
        "nvidia/toolkit/.config/nvidia-container-runtime/config.toml",
    ];
    let before = paths.map(identity);
    set_up(&["--no-daemon"]);
    assert_eq!(paths.map(identity), before, "nothing is written twice");

    let mut daemon = host.daemon();
    let holder = host.text("toolkit.pid").expect("its file");
    assert_eq!(holder.trim(), daemon.0.id().to_string());
    let second = host.toolkit().output().expect("the program runs");
    assert!(String::from_utf8_lossy(&second.stderr).contains("another gpu-toolkit holds"));
    daemon.terminate();
    assert_eq!(daemon.end_within(Duration::from_secs(10)), Some(0));
    assert_eq!(host.text("host/etc/containerd/config.toml").as_deref(), Some(MAIN));
    assert!(
        host.path("nvidia/toolkit/nvidia-cdi-hook").exists(),
        "containers refer to it"
    );
    assert!(!host.path("toolkit.pid").exists());
    let still = "containerd has still to be restarted: `RUNTIME_RESTART_MODE=none` leaves that to somebody else";
    assert_eq!(host.log().matches(still).count(), 1, "{}", host.log());
}

#[test]
fn a_second_signal_ends_the_wait_for_another_program_and_says_what_stays() {
    let host = Host::new();
    let mut daemon = host.daemon();
    let main = host.text("host/etc/containerd/config.toml");
    assert_ne!(main.as_deref(), Some(MAIN));
    let root = fs::File::open(host.path("host")).expect("the host's root");
    root.lock().expect("the right to change the engine's files");
    daemon.terminate();
    wait_for("it says that it waits", || {
        host.log().contains("another program is changing")
    });
    assert!(host.log().contains("taking back what"), "{}", host.log());
    assert_eq!(daemon.0.try_wait().expect("its state"), None);
    daemon.terminate();
    assert_eq!(daemon.end_within(Duration::from_secs(2)), Some(1));
    let log = host.log();
    let expected = format!(
        "error: what was set in containerd stays: `/etc/containerd/config.toml`, \
         `/etc/containerd/config.toml.gpu-runtime-config`: it was told to end while another program \
         was changing the files of the engines beneath `{}`\n",
        host.path("host").display()
    );
    assert!(log.ends_with(&expected), "{log}");
    assert_eq!(host.text("host/etc/containerd/config.toml"), main);
}

#[test]
fn a_file_that_somebody_breaks_meanwhile_stays_with_the_rest_and_all_of_it_is_named() {
    let host = Host::new();
    let main = host.path("host/etc/containerd/config.toml");
    fs::write(&main, "version = 3\n").expect("a file");
    let daemon = host
        .toolkit()
        .env("GPU_CONTAINERD_VERSION", "2.1")
        .stderr(host.new_log())
        .spawn();
    let mut daemon = Daemon(daemon.expect("the program runs"));
    wait_for("the node is set up", || host.log().contains("waiting for SIGTERM"));
    let text = host.text("host/etc/containerd/config.toml").expect("its file");
    fs::write(&main, text + "broken = [\n").expect("a file");
    daemon.terminate();
    assert_eq!(daemon.end_within(Duration::from_secs(5)), Some(1));
    let log = host.log();
    let expected = "error: what was set in containerd stays: `/etc/containerd/conf.d/99-nvidia.toml`, \
                    `/etc/containerd/config.toml`, `/etc/containerd/config.toml.gpu-runtime-config`: ";
    assert!(log.contains(expected), "{log}");
}

#[test]
fn whatever_signal_ends_it_takes_back_what_was_set() {
    for signal in [Signal::HUP, Signal::QUIT, Signal::INT] {
        let host = Host::new();
        let mut daemon = host.daemon();
        daemon.signal(signal);
        assert_eq!(daemon.end_within(Duration::from_secs(5)), Some(0), "{}", host.log());
        assert_eq!(host.text("host/etc/containerd/config.toml").as_deref(), Some(MAIN));
    }
}

#[test]
fn a_pipe_in_the_place_of_the_file_that_it_holds_is_refused() {
    let host = Host::new();
    let path = host.path("pipe");
    let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
    assert!(made.success());
    for arguments in [&[][..], &["--dry-run"]] {
        let mut command = host.toolkit();
        command
            .args(arguments)
            .env("TOOLKIT_PID_FILE", &path)
            .stdout(Stdio::null());
        let mut daemon = Daemon(command.stderr(host.new_log()).spawn().expect("the program runs"));
        assert_eq!(daemon.end_within(Duration::from_secs(5)), Some(1), "{}", host.log());
        let expected = format!("error: `{}` is a pipe, which cannot be held\n", path.display());
        assert!(host.log().ends_with(&expected), "{}", host.log());
    }
}

#[test]
fn two_signals_before_the_engine_is_changed_end_it_with_nothing_done_and_say_so() {
    let host = Host::new();
    let root = fs::File::open(host.path("host")).expect("the host's root");
    root.lock().expect("the right to change the engine's files");
    let mut daemon = host.starting(&[]);
    // What comes after the description of the node is the engine.
    wait_for("the node is described", || {
        host.log().contains("no CDI file is written")
    });
    let but_the_log = || {
        let mut tree = host.tree();
        tree.remove(&host.path("log"));
        // It is there while the program runs.
        tree.remove(&host.path("toolkit.pid"));
        tree
    };
    let before = but_the_log();
    daemon.terminate();
    daemon.signal(Signal::INT);
    assert_eq!(daemon.end_within(Duration::from_secs(5)), Some(0), "{}", host.log());
    let log = host.log();
    assert!(log.contains("the set-up ends") && !log.contains("stays"), "{log}");
    assert_eq!(host.text("host/etc/containerd/config.toml").as_deref(), Some(MAIN));
    assert_eq!(but_the_log(), before);
    assert!(!host.path("toolkit.pid").exists());
}

#[test]
fn a_signal_makes_a_set_up_without_a_daemon_fail() {
    let host = Host::new();
    let root = fs::File::open(host.path("host")).expect("the host's root");
    root.lock().expect("the right to change the engine's files");
    let mut daemon = host.starting(&["--no-daemon"]);
    wait_for("the node is described", || {
        host.log().contains("no CDI file is written")
    });
    daemon.terminate();
    assert_eq!(daemon.end_within(Duration::from_secs(5)), Some(1), "{}", host.log());
    let log = host.log();
    assert!(
        log.ends_with("error: a signal came: the node may not be set up in full\n"),
        "{log}"
    );
    assert_eq!(host.text("host/etc/containerd/config.toml").as_deref(), Some(MAIN));
}

#[test]
fn a_second_signal_at_once_takes_back_what_was_set() {
    let host = Host::new();
    let mut daemon = host.daemon();
    assert_ne!(host.text("host/etc/containerd/config.toml").as_deref(), Some(MAIN));
    daemon.terminate();
    daemon.signal(Signal::INT);
    assert_eq!(daemon.end_within(Duration::from_secs(5)), Some(0), "{}", host.log());
    assert_eq!(host.text("host/etc/containerd/config.toml").as_deref(), Some(MAIN));
}

/// The environment of a toolkit whose driver is a simulated one.
fn with_driver<'c>(command: &'c mut Command, node: &Node) -> &'c mut Command {
    command
        .env("PATH", "/usr/bin:/bin")
        .env("NVIDIA_DRIVER_ROOT", "/")
        .env("DRIVER_ROOT_CTR_PATH", node.root())
        .env("GPU_NVML_LIBRARY", node.library())
}

#[test]
fn the_installed_runtime_finds_the_gpus_also_where_cdi_is_not_asked_for() {
    let host = Host::new();
    let node = Node::create(&NodeSpec::new("h100").gpus(2), host.path("node")).expect("a node");
    let mut command = host.toolkit();
    let output = with_driver(&mut command, &node)
        .env("CDI_OUTPUT_DIR", host.path("cdi"))
        .arg("--no-daemon")
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!host.path("cdi").exists(), "nothing for others");

    let path = host.path("nvidia/toolkit/.config/nvidia-container-runtime/config.toml");
    let text = fs::read_to_string(&path).expect("the runtime's configuration");
    let config = gpu_runtime_config::toolkit::Config::parse(&path, &text).expect("the runtime's configuration");
    let cache = gpu_cdi::Cache::read(&config.cdi_spec_dirs);
    for name in ["0", "1", "all"] {
        let name = format!("{}={name}", config.cdi_default_kind).parse().expect("a name");
        let file = cache.file_of(&name).unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(file.starts_with(host.path("nvidia")), "{}", file.display());
    }
}

#[test]
fn an_engine_whose_file_is_broken_leaves_the_node_as_it_is() {
    let host = Host::new();
    let node = Node::create(&NodeSpec::new("h100"), host.path("node")).expect("a node");
    let broken = [
        (
            "containerd",
            "host/etc/containerd/config.toml",
            "[",
            "config.toml:1:2` is not valid TOML",
        ),
        (
            "containerd",
            "host/etc/containerd/config.toml",
            "root = \"{{ .Root }}\"\n",
            "template",
        ),
        ("docker", "host/etc/docker/daemon.json", "{", "is not valid JSON"),
    ];
    for (engine, path, text, expected) in broken {
        fs::create_dir_all(host.path(path).parent().expect("a folder")).expect("a new folder");
        fs::write(host.path(path), text).expect("a new file");
        for arguments in [&["--no-daemon"][..], &["--dry-run"]] {
            let before = host.tree();
            let mut command = host.toolkit();
            let output = with_driver(&mut command, &node)
                .env("RUNTIME", engine)
                .env("CDI_ENABLED", "true")
                .env("CDI_OUTPUT_DIR", host.path("cdi"))
                .env("TOOLKIT_PID_FILE", "/dev/null")
                .args(arguments)
                .output()
                .expect("the program runs");
            assert_eq!(output.status.code(), Some(1));
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(message.contains(expected), "{message}");
            assert!(output.stdout.is_empty());
            assert_eq!(host.tree(), before, "{engine} {arguments:?}");
        }
    }
}

#[test]
fn what_somebody_else_changes_meanwhile_stays() {
    let host = Host::new();
    let root = fs::File::open(host.path("host")).expect("the host's root");
    root.lock().expect("the right to change the engine's files");
    let child = host.toolkit().arg("--no-daemon").stderr(Stdio::null()).spawn();
    let mut daemon = Daemon(child.expect("the program runs"));
    // By now it has read the file once.
    wait_for("the programs are installed", || {
        host.path("nvidia/toolkit/gpuctl").exists()
    });
    let newer = format!("{MAIN}# and somebody else's\n");
    fs::write(host.path("host/etc/containerd/config.toml"), &newer).expect("the main file");
    root.unlock().expect("others may have the right");
    assert!(daemon.0.wait().expect("its end").success());
    let main = host.text("host/etc/containerd/config.toml").expect("the main file");
    assert!(
        main.contains("# and somebody else's\n") && main.contains("nvidia-container-runtime"),
        "{main}"
    );
}

#[test]
#[ignore = "needs root"]
fn a_host_that_is_mounted_read_only_is_written_through_the_other_mount_and_never_by_a_dry_run() {
    let host = Host::new();
    fs::create_dir(host.path("config-dir")).expect("a new folder");
    let mut toolkit = host.toolkit();
    toolkit.env("RUNTIME_CONFIG", host.path("config-dir/config.toml"));
    let script = format!(
        "set -e
        mount --make-rprivate /
        mount --bind '{host}/etc/containerd' '{here}'
        mount --bind '{host}' '{host}'
        mount -o remount,bind,ro '{host}'
        mounts=$(cat /proc/self/mountinfo)
        \"$0\" --dry-run > /dev/null
        test \"$mounts\" = \"$(cat /proc/self/mountinfo)\"
        \"$0\" --no-daemon",
        host = host.path("host").display(),
        here = host.path("config-dir").display(),
    );
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", &script])
        .arg(toolkit.get_program());
    for (name, value) in toolkit.get_envs() {
        command.env(name, value.expect("a value"));
    }
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let main = host.text("host/etc/containerd/config.toml").expect("the main file");
    assert!(main.contains("nvidia-container-runtime"), "{main}");
}

/// The lines of a dry run, without the diff.
fn announced(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(|line| line.starts_with("would "));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_dry_run_tells_all_that_a_run_does_and_does_nothing() {
    let host = Host::new();
    let node = Node::create(&NodeSpec::new("h100").gpus(2), host.path("node")).expect("a node");
    fs::create_dir(host.path("cdi")).expect("a new folder");
    let stale = host.path("cdi/nvidia.com-gds.yaml");
    fs::write(&stale, "what an earlier node had").expect("a new file");
    let toolkit = |arguments: &[&str]| {
        let mut command = host.toolkit();
        with_driver(&mut command, &node)
            .env("CDI_ENABLED", "true")
            .env("CDI_OUTPUT_DIR", host.path("cdi"))
            .env_remove("RUNTIME_RESTART_MODE")
            .args(arguments)
            .output()
            .expect("the program runs")
    };
    let path = |path: &str| format!("`{}`", host.path(path).display());
    let before = host.tree();
    let first = toolkit(&["--dry-run"]);
    assert_eq!(host.tree(), before);
    let lines = announced(&first);
    let expected = [
        format!("would install {}", path("nvidia/toolkit/nvidia-container-runtime.cdi")),
        format!("would remove {}", path("cdi/nvidia.com-gds.yaml")),
        format!("would write {} (nvidia.com/gpu)", path("cdi/nvidia.yaml")),
        format!(
            "would install {}",
            path("nvidia/toolkit/.config/nvidia-container-runtime/config.toml")
        ),
        "would write `/etc/containerd/config.toml`:".to_owned(),
        "would keep what takes this back in `/etc/containerd/config.toml.gpu-runtime-config`".to_owned(),
        "would send SIGHUP to containerd behind `/run/containerd/containerd.sock`, \
         and put the old files back if it does not live within 60 s"
            .to_owned(),
        "would then describe the GPUs anew whenever they change, until it is told to end".to_owned(),
        "would take back what it set in containerd at its end".to_owned(),
    ];
    let found: Vec<&String> = lines.iter().filter(|line| expected.contains(line)).collect();
    assert_eq!(found, expected.iter().collect::<Vec<_>>(), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.contains("as it is")), "{lines:#?}");

    let mut command = host.toolkit();
    let run = with_driver(&mut command, &node)
        .env("CDI_ENABLED", "true")
        .env("CDI_OUTPUT_DIR", host.path("cdi"))
        .arg("--no-daemon")
        .output()
        .expect("the program runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    // What was done is what was told, the file that keeps others out apart.
    let was_told = |path: &str| lines.iter().any(|line| line.contains(&format!("`{path}`")));
    let root = host.path("host").display().to_string();
    for (path, state) in host.tree() {
        let path_on_host = path.to_str().expect("UTF-8").trim_start_matches(&root).to_owned();
        let is_done = path.is_file() && before.get(&path) != Some(&state) && path != host.path("toolkit.pid");
        assert!(!is_done || was_told(&path_on_host), "{}: {lines:#?}", path.display());
    }
    for line in &lines {
        let Some(path) = line.split('`').nth(1) else { continue };
        let removed = line.starts_with("would remove");
        let there = [
            PathBuf::from(path),
            host.path("host").join(path.trim_start_matches('/')),
        ];
        if line.starts_with("would install") || line.starts_with("would write") || removed {
            assert_eq!(there.iter().any(|path| path.exists()), !removed, "{line}");
        }
    }
    let before = host.tree();
    let second = toolkit(&["--dry-run", "--no-daemon"]);
    assert_eq!(host.tree(), before);
    let lines = announced(&second);
    assert!(
        lines
            .iter()
            .all(|line| line.ends_with("as it is") || line.contains("as it should be")),
        "{lines:#?}"
    );
    assert!(!String::from_utf8_lossy(&second.stdout).contains("+++"));
}

#[test]
fn a_dry_run_refuses_what_a_run_refuses() {
    let host = Host::new();
    for (flag, value) in [
        ("--toolkit-source-root", "/nope"),
        ("--toolkit-source-root", "/proc/self/status"),
    ] {
        let run = |arguments: &[&str]| {
            let output = host.toolkit().args(arguments).output().expect("the program runs");
            (
                output.status.code(),
                String::from_utf8_lossy(&output.stderr).into_owned(),
            )
        };
        let (code, message) = run(&[flag, value]);
        assert_eq!(code, Some(1));
        assert!(
            message.contains("gpu-container-runtime`, which is to be installed"),
            "{message}"
        );
        assert_eq!(run(&["--dry-run", flag, value]), (code, message));
    }
    assert!(!host.path("nvidia").exists());
}

#[test]
fn a_dry_run_tells_of_a_toolkit_that_runs() {
    let host = Host::new();
    let file = fs::File::create(host.path("toolkit.pid")).expect("a new file");
    file.lock().expect("a lock");
    for variable in ["TOOLKIT_PID_FILE", "PID_FILE"] {
        let mut toolkit = host.toolkit();
        toolkit
            .env_remove("TOOLKIT_PID_FILE")
            .env(variable, host.path("toolkit.pid"));
        let output = toolkit.arg("--dry-run").output().expect("the program runs");
        assert!(output.status.success());
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains("another gpu-toolkit holds"), "{message}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_dry_run_tells_of_device_nodes_that_are_missing_and_counts_with_them() {
    let host = Host::new();
    let node = Node::create(&NodeSpec::new("h100"), host.path("node")).expect("a node");
    let toolkit = |arguments: &[&str]| {
        let mut command = host.toolkit();
        with_driver(&mut command, &node)
            .env("HOST_ROOT_MOUNT", node.root())
            .env("NO_RUNTIME_CONFIG", "true")
            .env("CREATE_DEVICE_NODES", "control")
            .args(arguments)
            .output()
            .expect("the program runs")
    };
    assert!(toolkit(&["--no-daemon"]).status.success());
    let missing = node.root().join("dev/nvidiactl");
    fs::remove_file(&missing).expect("a node");
    let lines = announced(&toolkit(&["--dry-run"]));
    let made: Vec<&String> = lines.iter().filter(|line| line.starts_with("would make")).collect();
    let expected = format!(
        "would make `{}` (character device 195:255, mode 666)",
        missing.display()
    );
    assert_eq!(made, [&expected]);
    assert!(!missing.exists());
    assert!(!lines.iter().any(|line| line.starts_with("would write")), "{lines:#?}");
}

#[test]
fn a_file_of_devices_that_somebody_removes_is_written_again() {
    let host = Host::new();
    let node = Node::create(&NodeSpec::new("h100"), host.path("node")).expect("a node");
    let mut command = host.toolkit();
    let child = with_driver(&mut command, &node)
        .env("NO_RUNTIME_CONFIG", "true")
        .env("CDI_ENABLED", "true")
        .env("CDI_OUTPUT_DIR", host.path("cdi"))
        .stderr(Stdio::null())
        .spawn();
    let _daemon = Daemon(child.expect("the program runs"));
    let file = host.path("cdi/nvidia.yaml");
    wait_for("the GPU is described", || file.exists());
    sleep(Duration::from_secs(1)); // it has seen what it wrote
    fs::remove_file(&file).expect("a file");
    wait_for("it is there again", || file.exists());
}

#[test]
fn a_distributions_containerd_is_set_up_as_it_reads_it() {
    let host = Host::new();
    let folder = "host/var/lib/rancher/k3s/agent/etc/containerd";
    let main = "version = 3\nimports = ['/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/*.toml']\n";
    for path in [folder, "host/run/k3s/containerd"] {
        fs::create_dir_all(host.path(path)).expect("a new folder");
    }
    fs::write(host.path(folder).join("config.toml"), main).expect("a new file");
    fs::write(host.path("host/run/k3s/containerd/containerd.sock"), "").expect("a new file");
    let output = host.toolkit().arg("--no-daemon").output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let drop_in = fs::read_to_string(host.path(folder).join("config-v3.toml.d/99-nvidia.toml")).expect("the drop-in");
    assert!(drop_in.contains("version = 3\n"), "{drop_in}");
    let text = fs::read_to_string(host.path(folder).join("config.toml")).expect("the main file");
    assert_eq!(text, main, "it is rendered anew at every start");
    assert_eq!(host.text("host/etc/containerd/config.toml").as_deref(), Some(MAIN));
}

#[test]
fn a_hosts_root_that_is_missing_is_named() {
    let host = Host::new();
    let output = host
        .toolkit()
        .env("HOST_ROOT_MOUNT", host.path("typo"))
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("cannot find the host's root"), "{text}");
    assert!(!host.path("typo").exists() && !host.path("nvidia").exists());
}

#[test]
fn it_ends_in_time_where_the_engine_does_not_answer() {
    let host = Host::new();
    fs::create_dir_all(host.path("host/run/containerd")).expect("a new folder");
    let path = host.path("host/run/containerd/containerd.sock");
    let full = UnixListener::bind(&path).expect("a socket");
    rustix::net::listen(&full, 0).expect("a short queue");
    let _queued = UnixStream::connect(&path).expect("a connection");
    let child = host
        .toolkit()
        .env("RUNTIME_RESTART_MODE", "signal")
        .env("GPU_CONTAINERD_VERSION", "2.1")
        .stderr(fs::File::create(host.path("log")).expect("a new file"))
        .spawn();
    let mut daemon = Daemon(child.expect("the program runs"));
    wait_for("it says what it has done before it tells the engine", || {
        host.log().contains("wrote `/etc/containerd/conf.d/99-nvidia.toml`")
    });
    let start = Instant::now();
    let killed = Command::new("kill").arg(daemon.0.id().to_string()).status();
    assert!(killed.expect("kill runs").success());
    assert!(daemon.0.wait().expect("it ends").success());
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(host.text("host/etc/containerd/config.toml").as_deref(), Some(MAIN));
}

#[test]
fn an_engine_that_is_not_there_is_waited_for_in_words() {
    let host = Host::new();
    let toolkit = |arguments: &[&str]| {
        let output = host
            .toolkit()
            .env("RUNTIME_RESTART_MODE", "signal")
            .env("GPU_RESTART_TIMEOUT", "1")
            .env("GPU_CONTAINERD_VERSION", "2.1")
            .args(arguments)
            .output()
            .expect("the program runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, said) = toolkit(&["--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    let warning = "nothing is behind `/run/containerd/containerd.sock`: where containerd is not started meanwhile, a run puts \
                   its old files back after 1 s\n";
    assert!(said.contains(warning), "{said}");

    let (code, said) = toolkit(&["--no-daemon"]);
    assert_eq!(code, Some(1), "{said}");
    let waiting = "waiting for the engine behind `/run/containerd/containerd.sock`, up to 1 s\n";
    let order = [
        "wrote `/etc/containerd/config.toml`\n",
        waiting,
        "the old files are back: the engine behind ",
        waiting,
        "error: containerd has its old files back and does not run with them either (where it listens elsewhere, say it by \
         `RUNTIME_SOCKET`; `RUNTIME_RESTART_MODE=none` leaves",
    ];
    let mut rest = said.as_str();
    for expected in order {
        let (_, after) = rest
            .split_once(expected)
            .unwrap_or_else(|| panic!("{expected}: {said}"));
        rest = after;
    }
    assert_eq!(host.text("host/etc/containerd/config.toml").as_deref(), Some(MAIN));
    assert!(!host.path("toolkit.pid").exists());
}

#[test]
fn a_configuration_whose_folder_is_not_mounted_is_refused_with_nothing_done() {
    let host = Host::new();
    for (variable, path, remedy) in [
        ("RUNTIME_CONFIG", "/runtime-x/config-dir/config.toml", "RUNTIME_CONFIG"),
        (
            "RUNTIME_DROP_IN_CONFIG",
            "/runtime-x/config-dir.d/99-nvidia.toml",
            "RUNTIME_DROP_IN_CONFIG_HOST_PATH",
        ),
        (
            "RUNTIME_SOCKET",
            "/runtime-x/sock-dir/containerd.sock",
            "RUNTIME_SOCKET",
        ),
    ] {
        for argument in ["--dry-run", "--no-daemon"] {
            let output = host.toolkit().env(variable, path).arg(argument).output();
            let output = output.expect("the program runs");
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{variable}: {text}");
            let expected = format!(
                "error: there is no `{}`, neither here nor",
                path.rsplit_once('/').expect("a folder").0
            );
            assert!(text.contains(&expected) && text.contains("is it mounted?"), "{text}");
            assert!(text.contains(&format!("by `{remedy}`\n")), "{text}");
            assert!(!host.path("nvidia").exists() && !host.path("host/runtime-x").exists());
        }
    }
    let output = host
        .toolkit()
        .env("RUNTIME_CONFIG", "/runtime-x/config-dir/config.toml")
        .args(["--no-daemon", "--no-runtime-config"])
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!host.path("host/runtime-x").exists());
}

#[test]
fn a_distribution_says_which_engine_it_is() {
    let host = Host::new();
    let toolkit = |runtime: Option<&str>| {
        let mut command = host.toolkit();
        command
            .env_remove("RUNTIME")
            .env("GPU_PRESET", "kubeadm")
            .arg("--dry-run");
        command.envs(runtime.map(|runtime| ("RUNTIME", runtime)));
        command.output().expect("the program runs")
    };
    let output = toolkit(None);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("would write `/etc/containerd/config.toml`"), "{text}");
    let output = toolkit(Some("docker"));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("`--preset` is for `--runtime=containerd`"), "{text}");
}

#[test]
fn what_is_not_supported_ends_it_before_it_begins() {
    let host = Host::new();
    let output = host
        .toolkit()
        .env("ENABLE_NRI_PLUGIN", "true")
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("ENABLE_NRI_PLUGIN") && text.contains("not supported"),
        "{text}"
    );
    assert!(!host.path("nvidia").exists());
}

#[test]
fn a_setting_that_every_container_would_fail_by_ends_it_before_it_begins() {
    let host = Host::new();
    let check = |variable: &str, value: &str, expected: &str| {
        let output = host.toolkit().env(variable, value).output().expect("the program runs");
        assert_eq!(output.status.code(), Some(2), "{variable}={value}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(expected), "{text}");
        assert!(!host.path("nvidia").exists());
    };
    check("NVIDIA_CONTAINER_RUNTIME_MODE", "csv", "mode `csv` is not supported");
    check(
        "NVIDIA_CONTAINER_RUNTIME_LOG_LEVEL",
        "loud",
        "there is no log level `loud`",
    );
    let kind = "NVIDIA_CONTAINER_RUNTIME_MODES_CDI_DEFAULT_KIND";
    check(kind, "gpu", "`gpu` is not a CDI kind");
    let neither = "error: the variable `CONTAINERD_SET_AS_DEFAULT`: `no` is neither true nor false\n";
    check("CONTAINERD_SET_AS_DEFAULT", "no", neither);
    check("NVIDIA_RUNTIME_SET_AS_DEFAULT", "no", "`no` is neither true nor false");
    let output = host
        .toolkit()
        .env("RUNTIME", "docker")
        .env("DOCKER_SET_AS_DEFAULT", "no")
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("`DOCKER_SET_AS_DEFAULT`: `no` is neither"), "{text}");
}

#[test]
fn paths_of_the_host_are_absolute() {
    let host = Host::new();
    for (variable, expected) in [
        (
            "NVIDIA_DRIVER_ROOT",
            "`--driver-root` takes an absolute path, not `a/b`",
        ),
        ("NVIDIA_DEV_ROOT", "`--dev-root` takes"),
        ("ROOT", "`--toolkit-install-dir` takes"),
        ("HOST_ROOT_MOUNT", "`--host-root` takes"),
        ("CDI_OUTPUT_DIR", "`--cdi-output-dir` takes"),
    ] {
        let output = host.toolkit().env(variable, "a/b").output().expect("the program runs");
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(expected), "{text}");
    }
    let bytes = std::ffi::OsStr::from_bytes(b"/drv\xff");
    let output = host
        .toolkit()
        .env("NVIDIA_DRIVER_ROOT", bytes)
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("the variable `NVIDIA_DRIVER_ROOT` is not UTF-8"),
        "{text}"
    );
    assert!(!host.path("nvidia").exists());
}

#[test]
fn programs_that_are_missing_are_named() {
    let host = Host::new();
    fs::remove_file(host.path("programs/gpu-cdi-hook")).expect("a file");
    let output = host.toolkit().output().expect("the program runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("gpu-cdi-hook`, which is to be installed: No such file"),
        "{text}"
    );
    assert!(!host.path("nvidia").exists(), "nothing is installed by halves");
}

#[test]
#[ignore = "needs root"]
fn gpus_are_described_again_when_they_are_divided_and_only_then() {
    let host = Host::new();
    let node = Node::create(&NodeSpec::new("h100").gpus(2), host.path("node")).expect("a node");
    let file = host.path("cdi/nvidia.yaml");
    let devices = || -> Vec<String> {
        let spec = gpu_cdi::Spec::read(&file);
        let spec = spec.map(|spec| spec.devices).unwrap_or_default();
        spec.iter().map(|device| device.name.to_string()).collect()
    };
    let has = |name: &str| devices().iter().any(|device| device == name);
    let child = host
        .toolkit()
        .env("PATH", "/usr/bin:/bin")
        .env("HOST_ROOT_MOUNT", node.root())
        .env("NO_RUNTIME_CONFIG", "true")
        .env("CREATE_DEVICE_NODES", "control")
        .env("CDI_ENABLED", "true")
        .env("CDI_OUTPUT_DIR", host.path("cdi"))
        .env("NVIDIA_DRIVER_ROOT", "/")
        .env("DRIVER_ROOT_CTR_PATH", node.root())
        .env("GPU_NVML_LIBRARY", node.library())
        .stderr(Stdio::null())
        .spawn();
    let daemon = Daemon(child.expect("the program runs"));
    wait_for("the GPUs are described", || has("0") && has("1"));
    let hooks = gpu_cdi::Spec::read(&file).expect("a spec").container_edits.hooks;
    assert_eq!((hooks.len(), hooks[0].args[1].as_str()), (1, "several"));
    assert!(host.path("cdi/management.nvidia.com-gpu.yaml").exists());
    let inode = || fs::metadata(&file).expect("a file").ino();

    let first = inode();
    sleep(Duration::from_secs(7)); // it has looked again by then
    assert_eq!(inode(), first, "nothing has changed");

    node.set_mig_mode(0, true).expect("MIG mode");
    node.create_mig(0, "1g.10gb", None).expect("a MIG device");
    wait_for("the MIG device is described", || has("0:0"));
    assert!(!has("0") && has("1"), "{:?}", devices());

    let instance = node.mig(0).expect("GPU instances")[0].id;
    node.destroy_mig(0, instance).expect("no MIG device");
    node.set_mig_mode(1, true).expect("MIG mode");
    wait_for("nothing is described that nobody can use", || !file.exists());
    node.create_mig(1, "1g.10gb", None).expect("a MIG device");
    wait_for("the MIG device is described", || has("1:0"));

    // What the child that reads the driver takes is not this process's.
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.0.id())).expect("its status");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .expect("a line");
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(kib < 4096, "{kib} KiB of its own");
    let maps = fs::read_to_string(format!("/proc/{}/maps", daemon.0.id())).expect("its memory");
    assert!(!maps.contains("libnvidia-ml"), "the driver's library stays loaded");
}
