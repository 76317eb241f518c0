use std::{
    fs,
    os::unix::process::ExitStatusExt,
    process::Command,
    time::{Duration, Instant},
};

use gpu_kubelet::double::{Config, Kubelet};
use gpu_sim::{Node, NodeSpec};
use rustix::process::Signal;
use tempfile::TempDir;

use super::{LONG, Running, program, run, stderr, stdout};

mod platform;

pub(super) const GPU: &str = "nvidia.com/gpu";

/// What an end after a signal may take; promised to whoever deploys it.
pub(super) const PROMPT: Duration = Duration::from_secs(2);

/// A simulated node with 4 GPUs, and the folder of a kubelet.
pub(super) struct Place {
    pub(super) dir: TempDir,
    pub(super) node: Node,
}

impl Place {
    pub(super) fn new() -> Self {
        Self::with(&NodeSpec::new("h100").gpus(4))
    }

    fn with(spec: &NodeSpec) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let node = Node::create(spec, dir.path().join("node")).expect("a simulated node");
        Self { dir, node }
    }

    async fn kubelet(&self) -> Kubelet {
        Kubelet::start(Config::in_dir(self.dir.path()))
            .await
            .expect("the kubelet double starts")
    }

    pub(super) fn plugin(&self) -> Command {
        let mut command = program(env!("CARGO_BIN_EXE_gpu-device-plugin"));
        command
            .envs(self.node.env())
            .env("KUBELET_SOCKET", self.dir.path().join("device-plugins/kubelet.sock"));
        command
    }
}

/// The lines of a log with these words.
fn lines(log: &str, words: &str) -> usize {
    log.lines().filter(|line| line.contains(words)).count()
}

/// Until the program that writes there has had time for what cannot be waited for.
async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(500)).await;
}

#[track_caller]
fn check_ends_well(plugin: Running, signal: Signal) -> String {
    plugin.signal(signal);
    let sent = Instant::now();
    let output = plugin.end(LONG);
    assert!(sent.elapsed() < PROMPT, "{:?}", sent.elapsed());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
    stderr(&output).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_it_well_and_leaves_no_socket() {
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        let place = Place::new();
        let kubelet = place.kubelet().await;
        let plugin = Running::start(&mut place.plugin());
        kubelet.wait_for_allocatable(GPU, 4, LONG).await.unwrap();
        check_ends_well(plugin, signal);
        kubelet.wait_for_allocatable(GPU, 0, LONG).await.unwrap();
        assert!(!kubelet.device_plugin_dir().join("nvidia-gpu.sock").exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absent_kubelet_is_waited_for_and_named_once() {
    let place = Place::new();
    fs::create_dir(place.dir.path().join("device-plugins")).unwrap();
    let plugin = Running::start(&mut place.plugin());
    tokio::time::sleep(Duration::from_millis(2500)).await; // for more than two attempts
    let log = check_ends_well(plugin, Signal::TERM);
    assert_eq!(lines(&log, "nobody listens on"), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_can_be_json() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let plugin = Running::start(place.plugin().arg("--log-format=json"));
    kubelet.wait_for_allocatable(GPU, 4, LONG).await.unwrap();
    let log = check_ends_well(plugin, Signal::TERM);
    let parsed: Result<Vec<serde_json::Value>, _> = log.lines().map(serde_json::from_str).collect();
    let messages = parsed.unwrap_or_else(|error| panic!("{error}: {log}"));
    // Not the registration: the kubelet lists the GPUs before the plugin has its answer to it.
    assert!(
        messages
            .iter()
            .any(|line| line["fields"]["message"] == "SIGTERM: ending"),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_hangs_does_not_keep_it() {
    let place = Place::new();
    // Nobody ever writes to it, so whoever opens it for reading hangs.
    let library = place.dir.path().join("libnvidia-ml.so.1");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &library,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let plugin = Running::start(place.plugin().env("GPU_NVML_LIBRARY", library));
    a_moment().await;
    plugin.signal(Signal::TERM);
    let sent = Instant::now();
    let output = plugin.end(LONG);
    assert!(sent.elapsed() < PROMPT, "{:?}", sent.elapsed());
    // It hangs where the loader's lock is held, so that nothing but a kill is left.
    assert_eq!(output.status.signal(), Some(Signal::KILL.as_raw()));
    assert_eq!(stderr(&output), "error: a call into the driver hangs: killed\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hang_up_has_the_gpus_read_again_by_the_same_process() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let plugin = Running::start(&mut place.plugin());
    kubelet.wait_for_allocatable(GPU, 4, LONG).await.unwrap();
    place.node.inject_xid(1, 79).unwrap();
    kubelet.wait_for_allocatable(GPU, 3, LONG).await.unwrap();
    place.node.lose(0).unwrap();
    kubelet.wait_for_allocatable(GPU, 2, LONG).await.unwrap();
    plugin.signal(Signal::HUP);
    kubelet.wait_for_allocatable(GPU, 3, LONG).await.unwrap();
    assert_eq!(
        (kubelet.capacity(GPU), kubelet.registrations(GPU)),
        (Some(4), 1),
        "the lost one stays in the list"
    );
    check_ends_well(plugin, Signal::TERM);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_driver_is_waited_for_if_asked_to_and_named_once() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let library = place.dir.path().join("libnvidia-ml.so.1");
    let mut command = place.plugin();
    let plugin = Running::start(
        command
            .envs([("FAIL_ON_INIT_ERROR", "false")])
            .env("GPU_NVML_LIBRARY", &library),
    );
    for _ in 0..3 {
        a_moment().await;
        plugin.signal(Signal::HUP);
    }
    a_moment().await;
    fs::copy(place.node.library(), &library).unwrap();
    plugin.signal(Signal::HUP);
    kubelet.wait_for_allocatable(GPU, 4, LONG).await.unwrap();
    let log = check_ends_well(plugin, Signal::TERM);
    assert_eq!(lines(&log, "no NVIDIA driver library"), 1, "{log}");
}

/// Recorded as `no-nvml` and `no-nvml-no-fail`: it ends with 1, and waits without anything to offer.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_drivers_library_it_ends_or_waits_as_it_is_asked_to() {
    for (seed, permute) in [(0, false), (7, true)] {
        let place = Place::with(&NodeSpec::new("a100").gpus(1).seed(seed).permute_pci(permute));
        let kubelet = place.kubelet().await;
        let root = place.node.root();
        let libraries = root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        for entry in fs::read_dir(&libraries).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name().to_string_lossy().starts_with("libnvidia-ml.so") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        let plugin = || {
            let mut command = place.plugin();
            // Named, so that a driver of this machine is not found in its place.
            let library = libraries.join("libnvidia-ml.so.1");
            command
                .env("CONTAINER_DRIVER_ROOT", &root)
                .env("GPU_NVML_LIBRARY", library);
            command
        };
        let output = run(&mut plugin());
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            lines(stderr(&output), "no NVIDIA driver library"),
            1,
            "{}",
            stderr(&output)
        );

        let waiting = Running::start(plugin().arg("--fail-on-init-error=false"));
        tokio::time::sleep(Duration::from_secs(3)).await; // as long as was recorded
        assert_eq!(kubelet.registrations(GPU), 0);
        let log = check_ends_well(waiting, Signal::TERM);
        assert_eq!(lines(&log, "looking again every 10 s"), 1, "{log}");
    }
}

#[test]
fn a_failure_is_one_message_and_exit_code_1() {
    #[track_caller]
    fn check(place: &Place, settings: &[(&str, &str)], expected: &[&str]) {
        let output = run(place.plugin().envs(settings.iter().copied()));
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(stdout(&output), "");
        let log = stderr(&output);
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(
            log.starts_with("error: ") && expected.iter().all(|words| log.contains(words)),
            "{log}"
        );
    }
    let place = Place::new();
    let missing = ("GPU_NVML_LIBRARY", "/nonexistent/libnvidia-ml.so.1");
    check(&place, &[missing], &["no NVIDIA driver library", missing.1]);
    let elsewhere = [
        ("NVIDIA_DRIVER_ROOT", "/run/nvidia/driver"),
        ("CONTAINER_DRIVER_ROOT", "/nonexistent"),
    ];
    check(&place, &elsewhere, &["`/run/nvidia/driver`", "`/nonexistent`"]);
    place.node.set_init_error(Some(18)).unwrap();
    check(&place, &[], &["driver/library version mismatch"]);
    place.node.set_init_error(None).unwrap();
    let file = place.dir.path().join("device-plugins");
    fs::create_dir(&file).unwrap();
    fs::write(file.join("nvidia-gpu.sock"), "mine").unwrap();
    let output = run(&mut place.plugin());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(lines(stderr(&output), "is not a socket"), 1, "{}", stderr(&output));
    assert_eq!(fs::read_to_string(file.join("nvidia-gpu.sock")).unwrap(), "mine");
}

#[test]
fn what_is_not_supported_is_refused_whether_flag_or_variable() {
    let place = Place::new();
    for (variable, value, flag) in [
        ("DEVICE_DISCOVERY_STRATEGY", "vfio", "--device-discovery-strategy=vfio"),
        ("CONFIG_FILE", "/nonexistent", "--config-file=/nonexistent"),
        ("NVIDIA_CTK_PATH", "nvidia-ctk", "--nvidia-cdi-hook-path=nvidia-ctk"),
        ("KUBELET_SOCKET", "", "--kubelet-socket="),
    ] {
        let by_variable = run(place.plugin().env(variable, value));
        let by_flag = run(place.plugin().arg(flag));
        assert!(!by_variable.status.success(), "{flag}");
        assert_eq!(by_variable.status.code(), by_flag.status.code());
        assert_eq!(stderr(&by_variable), stderr(&by_flag));
        assert!(stderr(&by_flag).starts_with("error: "), "{}", stderr(&by_flag));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_asks_for_nothing_and_what_is_empty_is_understood() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let mut command = place.plugin();
    command.args([
        "--mig-strategy",
        "none",
        "--pass-device-specs=false",
        "--mps-root=/run/nvidia/mps",
    ]);
    for variable in [
        "FAIL_ON_INIT_ERROR",
        "DEVICE_LIST_STRATEGY",
        "DEVICE_ID_STRATEGY",
        "NVIDIA_DEV_ROOT",
        "NVIDIA_CDI_HOOK_PATH",
        "MIG_STRATEGY",
        "CONFIG_FILE",
        "GDS_ENABLED",
        "CDI_DISABLE_HOOKS",
        "GPU_CDI_DIR",
        "GPU_LOG_FORMAT",
        "DP_DISABLE_HEALTHCHECKS",
    ] {
        command.env(variable, "");
    }
    let plugin = Running::start(&mut command);
    kubelet.wait_for_allocatable(GPU, 4, LONG).await.unwrap();
    check_ends_well(plugin, Signal::TERM);
}

/// The number of allocatable devices with this configuration file.
fn sharing(replicas: u32) -> String {
    format!("sharing: {{ timeSlicing: {{ resources: [{{ name: gpu, replicas: {replicas} }}] }} }}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_file_is_taken_over_by_the_same_process_and_what_cannot_be_used_is_refused_once() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    // As the kubelet mounts a ConfigMap: a link to a link to a folder that is replaced as a whole.
    let folder = place.dir.path().join("config");
    let version = |name: &str, text: &str| {
        fs::create_dir_all(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("config.yaml"), text).unwrap();
        let new = folder.join("..data_tmp");
        std::os::unix::fs::symlink(name, &new).unwrap();
        fs::rename(new, folder.join("..data")).unwrap();
    };
    version("..1", &sharing(4));
    std::os::unix::fs::symlink("..data/config.yaml", folder.join("config.yaml")).unwrap();
    let port = free_port();
    let mut command = place.plugin();
    command
        .env("CONFIG_FILE", folder.join("config.yaml"))
        .env("GPU_LISTEN", format!("127.0.0.1:{port}"));
    let plugin = Running::start(&mut command);
    kubelet.wait_for_allocatable(GPU, 16, LONG).await.unwrap();
    let refused = |expected: u32| {
        let (_, metrics) = probe(port, "/metrics");
        let line = format!("gpu_device_plugin_config_refused{{}} {expected}\n");
        assert!(metrics.contains(&line), "{metrics}");
    };
    refused(0);

    version("..2", &sharing(2));
    kubelet
        .wait_for_allocatable(GPU, 8, Duration::from_secs(5))
        .await
        .unwrap();
    version("..3", "sharing: { timeSlice: {} }");
    tokio::time::sleep(Duration::from_millis(2500)).await; // for two looks
    assert_eq!(kubelet.allocatable(GPU), Some(8));
    refused(1);
    version("..4", &sharing(2));
    tokio::time::sleep(Duration::from_millis(1500)).await; // for a look
    refused(0);
    fs::rename(folder.join("..data"), folder.join("away")).unwrap();
    tokio::time::sleep(Duration::from_millis(2500)).await; // for two looks
    assert_eq!(kubelet.allocatable(GPU), Some(8));
    refused(1);
    version("..5", "");
    kubelet
        .wait_for_allocatable(GPU, 4, Duration::from_secs(5))
        .await
        .unwrap();
    assert_eq!(kubelet.registrations(GPU), 1);
    refused(0);
    let log = check_ends_well(plugin, Signal::TERM);
    assert_eq!(lines(&log, "did you mean `timeSlicing`"), 1, "{log}");
    assert_eq!(lines(&log, "cannot read the configuration file"), 1, "{log}");
}

pub(super) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// The status code and the body of a probe's answer.
pub(super) fn probe(port: u16, path: &str) -> (String, String) {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("somebody listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).expect("a status");
    (status.to_owned(), body.trim_end().to_owned())
}

/// Until a probe has this answer, which is that of another thread or process.
pub(super) async fn until(port: u16, path: &str, answer: impl Fn(&str, &str) -> bool) {
    let mut last = None;
    for _ in 0..600 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            let (status, body) = probe(port, path);
            if answer(&status, &body) {
                return;
            }
            last = Some((status, body));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{path} says {last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_tell_whether_the_kubelet_has_all_that_is_offered() {
    let place = Place::new();
    fs::create_dir(place.dir.path().join("device-plugins")).unwrap();
    let port = free_port();
    let plugin = Running::start(place.plugin().env("GPU_LISTEN", format!("127.0.0.1:{port}")));
    a_moment().await;
    let check = |path: &str, status: &str, body: &str| {
        assert_eq!(probe(port, path), (status.to_owned(), body.to_owned()), "{path}");
    };
    check("/healthz", "200", "ok");
    check("/readyz", "503", "nvidia.com/gpu is not registered with the kubelet");
    check("/", "404", "there is nothing here");
    let kubelet = place.kubelet().await;
    kubelet.wait_for_allocatable(GPU, 4, LONG).await.unwrap();
    a_moment().await;
    check("/readyz", "200", "ok");

    place.node.inject_xid(2, 79).unwrap();
    kubelet.wait_for_allocatable(GPU, 3, LONG).await.unwrap();
    let ailing = format!(
        "gpu_device_plugin_ailing{{gpu=\"{}\",health=\"unhealthy\"}} 1\n",
        place.node.gpus()[2].uuid
    );
    let (_, metrics) = probe(port, "/metrics");
    assert!(metrics.contains(&ailing), "{metrics}");
    check_ends_well(plugin, Signal::TERM);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gpus_of_another_owner_are_left_to_it() {
    use gpu_core::ownership::{Owner, OwnerFile};
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let owners = OwnerFile::new(place.dir.path().join("owners.json"));
    let uuids: Vec<_> = place.node.gpus().iter().map(|gpu| gpu.uuid.parse().unwrap()).collect();
    owners.claim(Owner::Dra, &uuids[..1]).unwrap();
    let plugin = Running::start(
        place
            .plugin()
            .env("GPU_OWNERS_FILE", owners.path())
            .env("GPU_RELEASE_ON_EXIT", "true"),
    );
    kubelet.wait_for_allocatable(GPU, 3, LONG).await.unwrap();
    let claims = owners.read().unwrap().owners;
    assert_eq!((claims.len(), claims[&uuids[1]].owner), (4, Owner::DevicePlugin));
    let log = check_ends_well(plugin, Signal::TERM);
    assert_eq!(lines(&log, "is not offered: it is owned by dra"), 1, "{log}");
    assert_eq!(owners.read().unwrap().owners.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_is_replaced_is_loaded_by_the_same_process_number() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let plugin = Running::start(&mut place.plugin());
    kubelet.wait_for_allocatable(GPU, 4, LONG).await.unwrap();
    let mut node = Node::open(place.node.folder()).unwrap();
    node.load_driver("580").unwrap();
    kubelet.wait_for_registrations(GPU, 2, LONG).await.unwrap();
    kubelet.wait_for_allocatable(GPU, 4, LONG).await.unwrap();
    let log = check_ends_well(plugin, Signal::TERM);
    assert_eq!(lines(&log, "starting anew"), 1, "{log}");
}
