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

const GPU: &str = "nvidia.com/gpu";

/// What an end after a signal may take; promised to whoever deploys it.
const PROMPT: Duration = Duration::from_secs(2);

/// A simulated node with 4 GPUs, and the folder of a kubelet.
struct Place {
    dir: TempDir,
    node: Node,
}

impl Place {
    fn new() -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let node = Node::create(&NodeSpec::new("h100").gpus(4), dir.path().join("node")).expect("a simulated node");
        Self { dir, node }
    }

    async fn kubelet(&self) -> Kubelet {
        Kubelet::start(Config::in_dir(self.dir.path()))
            .await
            .expect("the kubelet double starts")
    }

    fn plugin(&self) -> Command {
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
    place.node.lose(0).unwrap();
    plugin.signal(Signal::HUP);
    let three = |kubelet: &Kubelet| kubelet.capacity(GPU) == Some(3);
    kubelet.wait_until("a lost GPU is gone", LONG, three).await.unwrap();
    assert_eq!(kubelet.registrations(GPU), 1);
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
fn what_is_not_supported_is_bad_usage_whether_flag_or_variable() {
    let place = Place::new();
    for (variable, value, flag) in [
        ("MIG_STRATEGY", "mixed", "--mig-strategy=mixed"),
        ("CONFIG_FILE", "/config.yaml", "--config-file=/config.yaml"),
        ("PASS_DEVICE_SPECS", "true", "--pass-device-specs"),
        (
            "DEVICE_LIST_STRATEGY",
            "volume-mounts",
            "--device-list-strategy=volume-mounts",
        ),
        ("KUBELET_SOCKET", "", "--kubelet-socket="),
    ] {
        let by_variable = run(place.plugin().env(variable, value));
        let by_flag = run(place.plugin().arg(flag));
        for output in [&by_variable, &by_flag] {
            assert_eq!(output.status.code(), Some(2), "{flag}: {}", stderr(output));
            let name = flag.split('=').next().unwrap();
            assert!(stderr(output).contains(name), "{}", stderr(output));
        }
        assert_eq!(stderr(&by_variable), stderr(&by_flag));
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
