//! `gpu-toolkit` on a host that is a folder: no engine runs there, and none is restarted.
#![cfg(feature = "toolkit")]

use std::{
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::MetadataExt as _,
        net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use gpu_sim::{Node, NodeSpec};

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

    let mut daemon = Daemon(host.toolkit().stderr(Stdio::null()).spawn().expect("the program runs"));
    wait_for("it holds its file", || {
        host.text("toolkit.pid")
            .is_some_and(|text| text.trim() == daemon.0.id().to_string())
    });
    // Its signal handlers come right after; ended before them it would leave everything as it is.
    sleep(Duration::from_millis(200));
    let second = host.toolkit().output().expect("the program runs");
    assert!(String::from_utf8_lossy(&second.stderr).contains("another gpu-toolkit holds"));
    let killed = Command::new("kill")
        .arg(daemon.0.id().to_string())
        .status()
        .expect("kill runs");
    assert!(killed.success());
    wait_for("it ends", || {
        fs::metadata(format!("/proc/{}/exe", daemon.0.id())).is_err()
    });
    assert!(daemon.0.wait().expect("it ended").success());
    assert_eq!(host.text("host/etc/containerd/config.toml").as_deref(), Some(MAIN));
    assert!(
        host.path("nvidia/toolkit/nvidia-cdi-hook").exists(),
        "containers refer to it"
    );
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
fn an_engine_whose_file_is_broken_keeps_no_gpu_from_being_described() {
    let host = Host::new();
    fs::write(host.path("host/etc/containerd/config.toml"), "[").expect("a new file");
    let node = Node::create(&NodeSpec::new("h100"), host.path("node")).expect("a node");
    let mut command = host.toolkit();
    let output = with_driver(&mut command, &node)
        .env("CDI_ENABLED", "true")
        .env("CDI_OUTPUT_DIR", host.path("cdi"))
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("config.toml:1:2` is not valid TOML"), "{text}");
    assert!(host.path("cdi/nvidia.yaml").exists());
    assert!(host.path("nvidia/toolkit/nvidia-cdi-hook").exists(), "which it names");
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
        .stderr(Stdio::null())
        .spawn();
    let mut daemon = Daemon(child.expect("the program runs"));
    wait_for("it waits for the engine", || {
        host.path("host/etc/containerd/conf.d/99-nvidia.toml").exists()
    });
    let start = Instant::now();
    let killed = Command::new("kill").arg(daemon.0.id().to_string()).status();
    assert!(killed.expect("kill runs").success());
    assert!(daemon.0.wait().expect("it ends").success());
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(host.text("host/etc/containerd/config.toml").as_deref(), Some(MAIN));
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
fn paths_of_the_host_are_absolute() {
    let host = Host::new();
    for (variable, expected) in [
        (
            "NVIDIA_DRIVER_ROOT",
            "`--driver-root` takes an absolute path of the host, not `a/b`",
        ),
        ("NVIDIA_DEV_ROOT", "`--dev-root` takes"),
        ("ROOT", "`--toolkit-install-dir` takes"),
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
