use std::{fs, process::Command, time::Duration};

use gpu_core::ComputeMode;
use gpu_sharing::{
    config::{Config, ConfigFile, Flags, Options, Reading},
    mps::{Agreement, plan},
};
use rustix::process::{Signal, kill_process};

use crate::node::{LONG, Running, Setup};

pub(crate) const ALL: [(&str, fn()); 13] = [
    (
        "it_serves_what_is_shared_and_tidies_up",
        it_serves_what_is_shared_and_tidies_up,
    ),
    ("modes_can_be_left_as_they_are", modes_can_be_left_as_they_are),
    (
        "what_did_not_change_keeps_its_clients",
        what_did_not_change_keeps_its_clients,
    ),
    (
        "a_signal_is_heard_while_clients_are_waited_for",
        a_signal_is_heard_while_clients_are_waited_for,
    ),
    (
        "a_signal_is_heard_while_the_driver_hangs",
        a_signal_is_heard_while_the_driver_hangs,
    ),
    (
        "a_daemon_that_dies_is_started_again",
        a_daemon_that_dies_is_started_again,
    ),
    (
        "what_a_killed_program_left_is_taken_over",
        what_a_killed_program_left_is_taken_over,
    ),
    (
        "a_daemon_that_a_killed_program_left_hanging_is_killed",
        a_daemon_that_a_killed_program_left_hanging_is_killed,
    ),
    (
        "a_file_of_modes_that_cannot_be_understood_keeps_nothing_down",
        a_file_of_modes_that_cannot_be_understood_keeps_nothing_down,
    ),
    (
        "a_driver_that_is_missing_is_told_until_it_comes",
        a_driver_that_is_missing_is_told_until_it_comes,
    ),
    (
        "what_cannot_be_used_leaves_what_runs",
        what_cannot_be_used_leaves_what_runs,
    ),
    (
        "every_flag_changes_what_is_seen_of_it",
        every_flag_changes_what_is_seen_of_it,
    ),
    (
        "nothing_is_run_where_nothing_is_shared",
        nothing_is_run_where_nothing_is_shared,
    ),
];

/// Within which the program ends.
const PROMISED: Duration = Duration::from_secs(2);
const GPU: &str = "nvidia.com/gpu";
const FOUR: &str = "sharing: { mps: { resources: [{ name: nvidia.com/gpu, replicas: 4 }] } }";
const DEFAULT: [ComputeMode; 2] = [ComputeMode::Default; 2];
const EXCLUSIVE: [ComputeMode; 2] = [ComputeMode::ExclusiveProcess; 2];

fn it_serves_what_is_shared_and_tidies_up() {
    let setup = Setup::new(FOUR);
    let running = setup.start(&[]);
    setup.wait_until_ready();
    assert_eq!(setup.ask(GPU, "get_default_active_thread_percentage"), "25.0");
    let inventory = setup.inventory();
    let limit = (inventory.gpus[0].memory.unwrap().total_bytes / 4) >> 20;
    for gpu in 0..2 {
        let answer = setup.ask(GPU, &format!("get_default_device_pinned_mem_limit {gpu}"));
        assert_eq!(answer, format!("{limit}M"));
    }
    assert_eq!(setup.modes(), EXCLUSIVE);

    // What the device plugin plans is what the daemon says.
    let (file, _) = ConfigFile::parse(FOUR, Reading::Strict).unwrap();
    let (config, _) = Config::resolve(file, Flags::default(), Options::default());
    let wanted = plan(&inventory, &config).unwrap().resources.remove(0);
    assert_eq!(setup.agreement(GPU), Some(Agreement::Serves(wanted)));

    setup.wait_for("/readyz", || running.get("/readyz").0 == 200);
    assert_eq!(running.get("/healthz").0, 200);
    let metrics = running.get("/metrics").1;
    assert!(
        metrics.contains("gpu_mps_daemon_serves{resource=\"nvidia.com/gpu\"} 1\n"),
        "{metrics}"
    );
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    setup.wait_for("the daemon's own log", || {
        setup.log().contains("Starting control daemon")
    });

    // Also with a client that does not leave.
    let client = setup.client(GPU);
    let (code, time) = running.end();
    assert_eq!(code, Some(0), "{}", setup.log());
    assert!(time < PROMISED, "it took {time:?}");
    assert!(!client.is_connected());
    assert_eq!(setup.modes(), DEFAULT);
    let (root, resource) = (setup.root(), GPU.parse().unwrap());
    assert!(!root.ready().exists() && !root.started(&resource).exists() && !root.log(&resource).exists());
    assert!(root.pipe(&resource).exists(), "containers hold it");
}

fn modes_can_be_left_as_they_are() {
    let setup = Setup::new(FOUR);
    let running = setup.start(&["--compute-mode=keep"]);
    setup.wait_until_ready();
    assert_eq!(setup.modes(), DEFAULT);
    assert_eq!(running.end().0, Some(0));
    assert_eq!(setup.modes(), DEFAULT);
}

fn two(second: u32) -> String {
    format!(
        "sharing: {{ mps: {{ resources: [{{ name: gpu, rename: a, devices: [0], replicas: 2 }}, \
         {{ name: gpu, rename: b, devices: [1], replicas: {second} }}] }} }}"
    )
}

fn what_did_not_change_keeps_its_clients() {
    let setup = Setup::new(&two(2));
    let running = setup.start(&["--resource-naming"]);
    setup.wait_until_ready();
    let (a, b) = (setup.daemon("a"), setup.daemon("b"));
    let (client_of_a, client_of_b) = (setup.client("a"), setup.client("b"));

    setup.configure(&two(5));
    setup.wait_for("the new daemon", || {
        setup.daemon("b").is_some_and(|now| Some(now) != b) && setup.root().ready().exists()
    });
    assert_eq!(setup.daemon("a"), a);
    assert_eq!(setup.ask("a", "get_default_active_thread_percentage"), "50.0");
    assert_eq!(setup.ask("b", "get_default_active_thread_percentage"), "20.0");
    assert!(client_of_a.is_connected());
    assert!(!client_of_b.is_connected());

    // A GPU that is lost ends nobody's daemon either.
    setup.node().lose(1).unwrap();
    setup.wait_for("the loss", || setup.inventory().gpus.len() == 1);
    running.signal(Signal::HUP);
    setup.wait_for("the end of its daemon", || setup.daemon("b").is_none());
    setup.wait_until_ready();
    assert_eq!(setup.daemon("a"), a, "{}", setup.log());
    assert!(client_of_a.is_connected());
    assert_eq!(running.end().0, Some(0));
}

fn a_signal_is_heard_while_clients_are_waited_for() {
    let setup = Setup::new(&two(2));
    let running = setup.start(&["--resource-naming"]);
    setup.wait_until_ready();
    // Neither leaves; each daemon gives its own a second.
    let clients = [setup.client("a"), setup.client("b")];
    setup.configure(&two(5));
    setup.wait_for("the end of the daemon", || !setup.root().ready().exists());
    let (code, time) = running.end();
    assert_eq!(code, Some(0), "after {time:?}: {}", setup.log());
    assert!(time < PROMISED, "it took {time:?}");
    assert!(clients.iter().all(|client| !client.is_connected()));
    assert_eq!(setup.modes(), DEFAULT);
    for resource in ["a", "b"] {
        assert_eq!(setup.daemon(resource), None, "{resource}: {}", setup.log());
    }
}

/// A GPU that hangs keeps its mode; the next start knows it.
fn a_signal_is_heard_while_the_driver_hangs() {
    let setup = Setup::new(FOUR);
    let running = setup.start(&[]);
    setup.wait_until_ready();
    setup.node().hang(0, LONG).unwrap();
    running.signal(Signal::HUP);
    setup.wait_for("the reload", || setup.log().matches("read anew").count() == 1);
    let (_, time) = running.end();
    assert!(time < PROMISED, "it took {time:?}");
    assert_eq!(setup.daemon(GPU), None, "{}", setup.log());
    setup.node().restore(0).unwrap();
    assert_eq!(setup.modes(), [ComputeMode::ExclusiveProcess, ComputeMode::Default]);

    let running = setup.start(&[]);
    setup.wait_until_ready();
    assert_eq!(running.end().0, Some(0));
    assert_eq!(setup.modes(), DEFAULT);
}

fn a_daemon_that_dies_is_started_again() {
    let setup = Setup::new(FOUR);
    let running = setup.start(&[]);
    setup.wait_until_ready();
    let first = setup.daemon(GPU).unwrap();
    kill_process(first, Signal::KILL).unwrap();
    setup.wait_for("the end of the file", || setup.agreement(GPU).is_none());
    setup.wait_for("another daemon", || {
        setup.agreement(GPU).is_some() && setup.daemon(GPU).is_some_and(|now| now != first)
    });
    setup.wait_until_ready();
    assert_eq!(setup.ask(GPU, "get_default_active_thread_percentage"), "25.0");
    let metrics = running.get("/metrics").1;
    let failures = "gpu_mps_daemon_failures_total{resource=\"nvidia.com/gpu\"} 1\n";
    assert!(metrics.contains(failures), "{metrics}");
    assert_eq!(running.end().0, Some(0));
    assert_eq!(setup.modes(), DEFAULT);
}

fn what_a_killed_program_left_is_taken_over() {
    let setup = Setup::new(FOUR);
    setup.set_mode(1, ComputeMode::Prohibited);
    let running = setup.start(&[]);
    setup.wait_until_ready();
    assert_eq!(setup.modes(), EXCLUSIVE);
    let left = setup.daemon(GPU).unwrap();
    drop(running); // killed
    assert_eq!(setup.agreement(GPU), None, "nobody holds the file's lock");

    let running = setup.start(&[]);
    setup.wait_for("a daemon of its own", || {
        setup.agreement(GPU).is_some() && setup.daemon(GPU).is_some_and(|now| now != left)
    });
    assert_eq!(running.end().0, Some(0));
    let found = [ComputeMode::Default, ComputeMode::Prohibited];
    assert_eq!(setup.modes(), found, "the modes of before the first start");
}

fn a_daemon_that_a_killed_program_left_hanging_is_killed() {
    let setup = Setup::new(FOUR);
    let running = setup.start(&[]);
    setup.wait_until_ready();
    let left = setup.daemon(GPU).unwrap();
    drop(running); // killed
    kill_process(left, Signal::STOP).unwrap();

    let running = setup.start(&[]);
    setup.wait_for("a daemon of its own", || {
        setup.agreement(GPU).is_some() && setup.daemon(GPU).is_some_and(|now| now != left)
    });
    assert!(setup.log().contains("did not answer"), "{}", setup.log());
    assert_eq!(setup.ask(GPU, "get_default_active_thread_percentage"), "25.0");
    assert_eq!(running.end().0, Some(0));
    assert_eq!(setup.modes(), DEFAULT);
}

fn a_file_of_modes_that_cannot_be_understood_keeps_nothing_down() {
    let setup = Setup::new(FOUR);
    let file = setup.root().path().join(".compute-modes");
    fs::create_dir_all(setup.root().path()).unwrap();
    fs::write(&file, "{\"GPU-").unwrap();
    let running = setup.start(&[]);
    setup.wait_until_ready();
    let words = format!("cannot understand `{}`", file.display());
    setup.wait_for("the file's name", || setup.log().contains(&words));
    assert_eq!(setup.modes(), EXCLUSIVE);
    assert_eq!(running.end().0, Some(0));
    assert_eq!(setup.modes(), DEFAULT);
    assert!(file.with_extension("damaged").exists() && !file.exists());
}

fn has(running: &Running, metric: &str, value: u32) -> bool {
    let line = format!("gpu_mps_daemon_{metric}{{}} {value}\n");
    running.get("/metrics").1.contains(&line)
}

fn a_driver_that_is_missing_is_told_until_it_comes() {
    let setup = Setup::new(FOUR);
    let (library, away) = (setup.node().library(), setup.node().library().with_extension("away"));
    fs::rename(&library, &away).unwrap();
    let running = setup.start(&[]);
    setup.wait_for("the driver's absence", || {
        setup.log().contains("no NVIDIA driver library")
    });
    let (status, words) = running.get("/readyz");
    assert_eq!(status, 503);
    assert!(words.contains("no NVIDIA driver library"), "{words}");
    assert!(has(&running, "problems", 1) && has(&running, "config_refused", 0));
    assert_eq!(running.get("/healthz").0, 200);
    fs::rename(&away, &library).unwrap();
    setup.wait_until_ready();
    setup.wait_for("/readyz", || running.get("/readyz").0 == 200);
    assert!(has(&running, "problems", 0));
    assert_eq!(running.end().0, Some(0));
}

fn what_cannot_be_used_leaves_what_runs() {
    let setup = Setup::new(FOUR);
    let running = setup.start(&[]);
    setup.wait_until_ready();
    setup.wait_for("/readyz", || running.get("/readyz").0 == 200);
    assert!(has(&running, "problems", 0) && has(&running, "config_refused", 0));
    let daemon = setup.daemon(GPU);
    for (config, words) in [
        (
            "sharing: { mps: { resources: [{ name: gpu, replicas: 1 }] } }",
            "number of replicas must be >= 2",
        ),
        (
            "sharing: { mps: { resources: [{ name: gpu, replicas: 100 }] } }",
            "maximum allowed replicas exceeded: 100 > 48",
        ),
        ("sharing: { mpss: {} }", "did you mean `mps`?"),
    ] {
        setup.configure(config);
        setup.wait_for(words, || setup.log().contains(words));
        assert_eq!(setup.daemon(GPU), daemon);
        assert!(setup.root().ready().exists());
        setup.wait_for("the refusal", || has(&running, "config_refused", 1));
        let (status, said) = running.get("/readyz");
        assert_eq!(status, 503);
        assert!(said.contains(words), "{said}");
    }
    setup.configure(FOUR);
    setup.wait_for("/readyz", || running.get("/readyz").0 == 200);
    assert!(has(&running, "problems", 0) && has(&running, "config_refused", 0));
    assert_eq!(setup.daemon(GPU), daemon);
    // What is not there is shared when it comes.
    setup.configure(&FOUR.replace("4 }", "4 }, { name: absent, replicas: 2 }"));
    setup.wait_for("the remark", || has(&running, "problems", 1));
    assert_eq!((running.get("/readyz").0, setup.daemon(GPU)), (200, daemon));
    assert_eq!(running.end().0, Some(0));
}

fn nothing_is_run_where_nothing_is_shared() {
    let setup = Setup::new("");
    let running = setup.start(&[]);
    setup.wait_until_ready();
    setup.wait_for("/readyz", || running.get("/readyz").0 == 200);
    assert_eq!(setup.daemon(GPU), None);
    setup.configure(FOUR);
    setup.wait_for("a daemon", || setup.agreement(GPU).is_some());
    assert_eq!(setup.modes(), EXCLUSIVE);
    setup.configure("");
    setup.wait_for("its end", || setup.modes() == DEFAULT);
    assert_eq!(setup.agreement(GPU), None);
    assert_eq!(running.end().0, Some(0));
}

/// That the program ends with this code and these words where a flag says so, or is not there.
#[track_caller]
fn ends(setup: &Setup, flag: &str, value: Option<&str>, code: i32, words: &str) {
    fs::write(setup.path_of_log(), "").unwrap();
    let argument = value.map(|value| format!("--{flag}={value}"));
    let lenient = (flag != "lenient-config").then_some("--lenient-config");
    let arguments: Vec<_> = argument.iter().map(String::as_str).chain(lenient).collect();
    assert_eq!(
        setup.start_without(flag, &arguments).ended(),
        Some(code),
        "{}",
        setup.log()
    );
    assert!(setup.log().contains(words), "{flag}: {}", setup.log());
}

fn every_flag_changes_what_is_seen_of_it() {
    let setup = Setup::new("typo: 3\nsharing: { mps: { resources: [{ name: gpu, rename: mine, replicas: 4 }] } }");
    ends(
        &setup,
        "config-file",
        Some("/nonexistent"),
        1,
        "cannot read the configuration file `/nonexistent`",
    );
    ends(&setup, "lenient-config", None, 1, "`typo` in line 1 is not a known key");
    ends(&setup, "mps-control", None, 1, "no `nvidia-cuda-mps-control` in PATH");
    ends(&setup, "mig-strategy", Some("some"), 2, "unknown MIG strategy: some");
    let mixed = "using --mig-strategy=mixed is not supported with MPS";
    ends(&setup, "mig-strategy", Some("mixed"), 1, mixed);
    let running = setup.start_without(
        "nvml-library",
        &["--lenient-config", "--nvml-library=/nonexistent/nvml.so"],
    );
    setup.wait_for("the library", || setup.log().contains("`/nonexistent/nvml.so`"));
    drop(running);

    // The folder says that SELinux is in force there.
    fs::create_dir_all(setup.node().root().join("sys/fs/selinux")).unwrap();
    fs::write(setup.path_of_log(), "").unwrap();
    let running = setup.start(&[
        "--lenient-config",
        "--resource-naming",
        "--compute-mode=keep",
        "--mig-strategy=single",
        "--log-format=json",
    ]);
    let pipe = setup.root().pipe(&"mine".parse().unwrap());
    let labelled = || {
        let mut label = [0; 64];
        let length = rustix::fs::lgetxattr(&pipe, "security.selinux", &mut label[..]);
        // Only the superuser may.
        length.is_ok_and(|length| label[..length].starts_with(b"system_u")) || setup.log().contains("cannot label")
    };
    setup.wait_for("the folder's label", labelled);
    if setup.log().contains("cannot label") {
        fs::remove_dir(setup.node().root().join("sys/fs/selinux")).unwrap();
    }
    setup.wait_until_ready();
    assert!(setup.agreement("mine").is_some());
    assert_eq!(setup.modes(), DEFAULT);
    assert_eq!(running.get("/healthz").0, 200);
    assert_eq!(running.end().0, Some(0));
    let log = setup.log();
    assert!(log.lines().all(|line| line.starts_with('{')), "{log}");

    let shown = [
        "config-file",
        "lenient-config",
        "mps-control",
        "nvml-library",
        "host-root",
        "mps-dir",
        "listen",
        "resource-naming",
        "compute-mode",
        "mig-strategy",
        "log-format",
    ];
    let output = Command::new(env!("CARGO_BIN_EXE_gpu-mps-daemon"))
        .arg("--help")
        .output()
        .unwrap();
    let all = crate::help::flags(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(all, shown.map(str::to_owned).into());
}
