use gpu_core::ComputeMode;
use gpu_sharing::{
    config::{Config, ConfigFile, Flags, Options, Reading},
    mps::{Agreement, plan},
};
use rustix::process::{Signal, kill_process};

use crate::node::Setup;

pub(crate) const ALL: [(&str, fn()); 7] = [
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
        "a_daemon_that_dies_is_started_again",
        a_daemon_that_dies_is_started_again,
    ),
    (
        "what_a_killed_program_left_is_taken_over",
        what_a_killed_program_left_is_taken_over,
    ),
    (
        "what_cannot_be_used_leaves_what_runs",
        what_cannot_be_used_leaves_what_runs,
    ),
    (
        "nothing_is_run_where_nothing_is_shared",
        nothing_is_run_where_nothing_is_shared,
    ),
];

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
    assert!(time.as_secs() < 3, "it took {time:?}"); // two are promised; a busy machine takes its share
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
    setup.wait_for("the reload", || setup.log().matches("read anew").count() >= 2);
    assert_eq!(setup.daemon("a"), a);
    assert!(client_of_a.is_connected());
    assert_eq!(running.end().0, Some(0));
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

fn what_cannot_be_used_leaves_what_runs() {
    let setup = Setup::new(FOUR);
    let running = setup.start(&[]);
    setup.wait_until_ready();
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
    }
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
