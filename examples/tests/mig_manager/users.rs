//! Who uses what has to go.

use gpu_core::GpuUuid;
use serde_json::json;

use super::*;

#[test]
fn a_pod_that_uses_what_has_to_go_is_named_and_evicted_only_where_that_is_asked() {
    let bench = Bench::new();
    bench.node.create_mig(0, "7g.80gb", None).unwrap();
    bench.use_instance("training");
    bench.ask("halves");
    let manager = bench.start(&[]);
    bench.ends("failed", "halves");
    assert!(bench.reason().contains("pod apps/training"), "{}", bench.reason());
    let event = bench.api.state().events[0].clone();
    assert!(
        event["message"].as_str().unwrap().contains("pod apps/training"),
        "{event}"
    );
    assert_eq!((bench.pauses_so_far(), bench.devices().len()), (0, 1));
    bench.wait("counted", |state| state.events[0]["count"] == 2);
    assert_eq!(bench.api.state().events.len(), 1);
    manager.end();

    bench.api.change(|state| state.budget = true);
    let manager = bench.start(&["--evict-pods"]);
    bench.pauses();
    assert!(bench.api.state().evicted.is_empty());
    bench.node.unload(0, None).unwrap();
    bench.api.change(|state| state.budget = false);
    bench.ends("success", "halves");
    assert_eq!(bench.api.state().evicted, ["training"]);
    assert_eq!(bench.devices().len(), 4);
    manager.end();
}

/// One H100 of two halves: pods by name and UID on each of them, and the client by its label on the second.
fn halves(users: &[(usize, &str)]) -> Bench {
    let bench = Bench::of("h100", 1);
    assert!(bench.node.set_mig_mode(0, true).expect("it has MIG"));
    for start in [0, 4] {
        bench.node.create_mig(0, "3g.40gb", Some(start)).expect("it fits");
    }
    for (number, (half, name)) in (1..).zip(users) {
        let uid = format!("3fb9bd86-c3d7-4c1d-9d0c-0d6a5a3f1f{number:02}");
        let mut pod = pod(name, &json!({}), "ReplicaSet");
        pod["metadata"]["uid"] = json!(uid);
        bench.api.change(|state| state.pods.push(pod));
        bench.runs(*half, 4242 + number, &uid);
    }
    bench
}

#[test]
fn a_pod_that_can_stay_does_where_another_waits_by_its_label() {
    // Were nothing in use, the first half would stay.
    let bench = halves(&[(1, "train")]);
    let uid = "3fb9bd86-c3d7-4c1d-9d0c-0d6a5a3f1f99";
    bench.api.change(|state| {
        let client = state.pods.iter_mut().find(|pod| pod["metadata"]["name"] == "client");
        client.expect("the client")["metadata"]["uid"] = json!(uid);
    });
    bench.runs(0, 77, uid);
    let kept = bench.devices()[1].clone();
    bench.ask("half");
    let _manager = bench.start(&["--evict-pods"]);
    bench.pauses();
    // Its pod is gone; time enough for a manager that does not wait for the process as well.
    thread::sleep(Duration::from_millis(500));
    bench.node.unload(0, Some(77)).unwrap();
    bench.ends("success", "half");
    let now = bench.api.state();
    assert!(now.evicted.is_empty(), "{:?}", now.evicted);
    assert_eq!(now.patches.len(), 2, "{:?}", now.patches);
    drop(now);
    assert_eq!(bench.devices(), [kept]);
}

#[test]
fn a_process_that_outlives_its_pod_is_named_and_nobody_waits_for_ever() {
    let bench = halves(&[(0, "a")]);
    bench.ask("whole");
    let _manager = bench.start(&["--evict-pods", "--pause-seconds=1"]);
    bench.ends("failed", "whole");
    // The next attempt has another reason: it finds a process of no pod.
    let ended = &bench.api.state().patches[1]["annotations"]["nvidia.com/mig.config.state-reason"].clone();
    assert_eq!(ended, "process 4243 is there after 1 s, though its pod is gone");
    assert_eq!(
        (bench.api.state().evicted.as_slice(), bench.devices().len()),
        (["a".to_owned()].as_slice(), 2)
    );
}

#[test]
fn as_few_pods_as_can_be_are_evicted() {
    let bench = halves(&[(0, "a"), (0, "b"), (1, "c")]);
    bench.api.change(|state| state.budget = true);
    bench.ask("half");
    let _manager = bench.start(&["--evict-pods"]);
    bench.pauses();
    bench.node.unload(0, Some(4245)).unwrap();
    bench.api.change(|state| state.budget = false);
    bench.ends("success", "half");
    assert_eq!(bench.api.state().evicted, ["c"]);
}

#[test]
fn a_process_of_the_host_is_named_and_nobody_is_evicted_for_it() {
    let bench = halves(&[(0, "a")]);
    bench.runs(1, 78, "00000000-0000-4000-8000-000000000000");
    bench.ask("whole");
    let _manager = bench.start(&["--evict-pods"]);
    bench.ends("failed", "whole");
    let expected = "`whole` takes instances that are in use by pod apps/a, process 78 (train): GPU 0: ";
    assert!(bench.reason().starts_with(expected), "{}", bench.reason());
    assert!(bench.api.state().evicted.is_empty());
    assert_eq!(bench.pauses_so_far(), 0);
}

#[test]
fn a_gpu_of_another_owner_is_refused_before_anybody_waits() {
    let bench = Bench::new();
    bench.node.create_mig(0, "7g.80gb", None).unwrap();
    let gpu: GpuUuid = bench.node.gpus()[1].uuid.parse().unwrap();
    let text = format!(r#"{{"version":1,"owners":{{"{gpu}":{{"owner":"dra","since":1}}}}}}"#);
    fs::write(bench.path("host/run/nvidia-gpu-owners.json"), &text).unwrap();
    bench.ask("halves");
    let manager = bench.start(&[]);
    bench.ends("failed", "halves");
    assert_eq!(bench.reason(), format!("cannot claim the GPUs: {gpu} is owned by dra"));
    assert_eq!((bench.pauses_so_far(), bench.devices().len()), (0, 1));
    manager.end();
    assert_eq!(
        fs::read_to_string(bench.path("host/run/nvidia-gpu-owners.json")).unwrap(),
        text
    );
}
