//! Pods get devices, hold them, and are refused.

use std::{collections::BTreeSet, time::Duration};

use gpu_kubelet::{
    device_plugin::{Device, DevicePluginOptions},
    double::{Config, EventKind, Kubelet},
};
use tempfile::TempDir;

use crate::plugin::{Allocate, Behaviour, Plugin, SOON, WIDGET, healthy, unhealthy};

/// A kubelet with one plugin whose devices it has seen.
async fn node(devices: Vec<Device>, behaviour: Behaviour) -> (TempDir, Kubelet, Plugin) {
    node_with(devices, behaviour, |_| {}).await
}

async fn node_with(
    devices: Vec<Device>,
    behaviour: Behaviour,
    adjust: impl FnOnce(&mut Config),
) -> (TempDir, Kubelet, Plugin) {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let mut config = Config::in_dir(dir.path());
    adjust(&mut config);
    let kubelet = Kubelet::start(config).await.expect("a kubelet");
    let count = devices.len();
    let plugin = Plugin::serve_and_register(&kubelet, devices, behaviour).await;
    kubelet
        .wait_until("the first list", SOON, |kubelet| {
            kubelet.capacity(WIDGET) == Some(count)
        })
        .await
        .expect("the first list");
    (dir, kubelet, plugin)
}

fn widgets(count: usize) -> Vec<Device> {
    (0..count).map(|number| healthy(&format!("w-{number}"))).collect()
}

/// What the plugin was asked to prefer, and among what.
fn preferences(kubelet: &Kubelet) -> Vec<(usize, Vec<String>)> {
    let asked = kubelet.events().into_iter().filter_map(|event| match event.kind {
        EventKind::Preferred { count, available, .. } => Some((count, available)),
        _ => None,
    });
    asked.collect()
}

fn allocations(kubelet: &Kubelet) -> usize {
    kubelet
        .events()
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Allocated { .. }))
        .count()
}

#[track_caller]
fn check_text(result: Result<impl std::fmt::Debug, impl std::error::Error>, expected: &str) {
    assert_eq!(result.expect_err("a refusal").to_string(), expected);
}

#[tokio::test]
async fn container_gets_the_plugins_answer() {
    let (_dir, kubelet, _plugin) = node(widgets(1), Behaviour::default()).await;

    let admission = kubelet.admit("trainer", "main", WIDGET, 1).await.unwrap();

    assert_eq!(admission.device_ids, ["w-0"]);
    assert_eq!(admission.response.envs["WIDGETS"], "w-0");
    let options = kubelet.start_container("trainer", "main").await.unwrap();
    assert_eq!(options.envs, admission.response.envs);
    let other = kubelet.start_container("trainer", "sidecar").await.unwrap();
    assert!(other.envs.is_empty(), "a container without devices gets nothing");
}

#[tokio::test]
async fn pods_hold_their_devices_until_removed() {
    let (_dir, kubelet, _plugin) = node(widgets(3), Behaviour::default()).await;

    let first = kubelet.admit("first", "main", WIDGET, 2).await.unwrap();
    let second = kubelet.admit("second", "main", WIDGET, 1).await.unwrap();
    let held: BTreeSet<_> = first.device_ids.iter().chain(&second.device_ids).collect();
    assert_eq!(held.len(), 3);
    check_text(
        kubelet.admit("third", "main", WIDGET, 1).await,
        "requested number of devices unavailable for example.com/widget. Requested: 1, Available: 0",
    );

    assert!(kubelet.remove_pod("second"));
    assert!(!kubelet.remove_pod("second"));
    let third = kubelet.admit("third", "main", WIDGET, 1).await.unwrap();
    assert_eq!(third.device_ids, second.device_ids);
    assert_eq!(
        kubelet.allocatable(WIDGET),
        Some(3),
        "use does not change what the node's status says"
    );
}

#[tokio::test]
async fn unregistered_resource_is_refused() {
    let (_dir, kubelet, _plugin) = node(widgets(1), Behaviour::default()).await;

    check_text(
        kubelet.admit("trainer", "main", "example.com/gadget", 1).await,
        "cannot allocate unregistered device example.com/gadget",
    );
}

#[tokio::test]
async fn pod_that_comes_while_the_plugin_is_away_is_refused() {
    let (_dir, kubelet, plugin) = node(widgets(2), Behaviour::default()).await;
    plugin.stop().await;
    kubelet.wait_for_allocatable(WIDGET, 0, SOON).await.unwrap();

    check_text(
        kubelet.admit("trainer", "main", WIDGET, 1).await,
        "no healthy devices present; cannot allocate unhealthy devices example.com/widget",
    );
}

#[tokio::test]
async fn unhealthy_devices_are_not_handed_out() {
    let devices = vec![unhealthy("w-0"), healthy("w-1"), unhealthy("w-2")];
    let (_dir, kubelet, _plugin) = node(devices, Behaviour::default()).await;

    check_text(
        kubelet.admit("greedy", "main", WIDGET, 2).await,
        "requested number of devices unavailable for example.com/widget. Requested: 2, Available: 1",
    );
    assert_eq!(
        kubelet.admit("modest", "main", WIDGET, 1).await.unwrap().device_ids,
        ["w-1"]
    );
}

#[tokio::test]
async fn preference_is_followed_filled_up_and_foreign_ids_are_ignored() {
    let behaviour = Behaviour::preferring(&["w-3", "no-such-widget", "w-3"]);
    let (_dir, kubelet, _plugin) = node(widgets(4), behaviour).await;

    let one = kubelet.admit("one", "main", WIDGET, 1).await.unwrap();
    assert_eq!(one.device_ids, ["w-3"]);

    let two = kubelet.admit("two", "main", WIDGET, 2).await.unwrap();
    assert_eq!(two.device_ids.len(), 2, "filled up though what is preferred is taken");
    assert!(!two.device_ids.contains(&"w-3".to_owned()));
    let (count, available) = preferences(&kubelet).pop().unwrap();
    assert_eq!((count, available.len()), (2, 3));
}

#[tokio::test]
async fn more_preferred_devices_than_needed_are_cut_down() {
    let (_dir, kubelet, _plugin) = node(widgets(4), Behaviour::preferring(&["w-1", "w-2", "w-3"])).await;

    let admission = kubelet.admit("trainer", "main", WIDGET, 2).await.unwrap();

    assert_eq!(admission.device_ids.len(), 2);
    assert!(!admission.device_ids.contains(&"w-0".to_owned()));
}

#[tokio::test]
async fn preference_is_asked_for_even_without_a_choice() {
    let (_dir, kubelet, _plugin) = node(widgets(2), Behaviour::preferring(&[])).await;

    let admission = kubelet.admit("trainer", "main", WIDGET, 2).await.unwrap();

    assert_eq!(admission.device_ids, ["w-0", "w-1"]);
    assert_eq!(preferences(&kubelet).len(), 1);
}

#[tokio::test]
async fn preference_is_not_asked_for_unless_offered() {
    let (_dir, kubelet, _plugin) = node(widgets(2), Behaviour::default()).await;

    kubelet.admit("trainer", "main", WIDGET, 1).await.unwrap();

    assert_eq!(preferences(&kubelet), []);
}

#[tokio::test]
async fn failed_preference_fails_the_pod() {
    let preferred = Some(Err("lost".to_owned()));
    let (_dir, kubelet, _plugin) = node(
        widgets(2),
        Behaviour {
            preferred,
            ..Behaviour::preferring(&[])
        },
    )
    .await;

    check_text(
        kubelet.admit("trainer", "main", WIDGET, 1).await,
        "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Internal desc = lost",
    );
    assert_eq!(allocations(&kubelet), 0);
}

async fn check_failed_allocate(allocate: Allocate, call_timeout: Duration, expected: &str) {
    let behaviour = Behaviour {
        allocate,
        ..Default::default()
    };
    let (_dir, kubelet, _plugin) = node_with(widgets(1), behaviour, |config| config.call_timeout = call_timeout).await;

    for pod in ["first", "second"] {
        check_text(kubelet.admit(pod, "main", WIDGET, 1).await, expected);
    }
    assert!(!kubelet.remove_pod("first"), "it holds nothing");
}

#[tokio::test]
async fn failed_allocate_fails_the_pod_and_frees_the_devices() {
    let expected = "Allocate failed due to rpc error: code = Unknown desc = sold out, which is unexpected";
    check_failed_allocate(Allocate::Fail("sold out".to_owned()), SOON, expected).await;
    let expected = "no containers return in allocation response for example.com/widget";
    check_failed_allocate(Allocate::AnswerNothing, SOON, expected).await;
}

#[tokio::test]
async fn unanswered_allocate_fails_the_pod_and_frees_the_devices() {
    let expected = "no answer to Allocate within 60ms";
    check_failed_allocate(Allocate::Hang, Duration::from_millis(60), expected).await;
}

#[tokio::test]
async fn restarted_container_gets_the_answer_kept_for_it() {
    let (_dir, kubelet, plugin) = node(widgets(2), Behaviour::default()).await;
    let first = kubelet.admit("trainer", "main", WIDGET, 1).await.unwrap();

    let again = kubelet.admit("trainer", "main", WIDGET, 1).await.unwrap();

    assert_eq!(again, first);
    assert_eq!(allocations(&kubelet), 1, "the plugin is not asked again");
    check_text(
        kubelet.admit("trainer", "main", WIDGET, 2).await,
        r#"pod "default/trainer" container "main" changed request for resource "example.com/widget" from 1 to 2"#,
    );

    let sick = first.device_ids[0].as_str();
    plugin.list(
        widgets(2)
            .into_iter()
            .filter(|device| device.id != sick)
            .chain([unhealthy(sick)])
            .collect(),
    );
    kubelet.wait_for_allocatable(WIDGET, 1, SOON).await.unwrap();
    check_text(
        kubelet.admit("trainer", "main", WIDGET, 1).await,
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/widget",
    );
}

#[tokio::test]
async fn checkpoint_outlives_a_kubelet_restart() {
    let (_dir, kubelet, _plugin) = node(widgets(2), Behaviour::default()).await;
    let before = kubelet.admit("trainer", "main", WIDGET, 1).await.unwrap();
    kubelet.restart().await.unwrap();
    check_text(
        kubelet.admit("trainer", "main", WIDGET, 1).await,
        "no healthy devices present; cannot allocate unhealthy devices example.com/widget",
    );

    let _plugin = Plugin::serve_and_register(&kubelet, widgets(2), Behaviour::default()).await;
    kubelet.wait_for_allocatable(WIDGET, 2, SOON).await.unwrap();

    assert_eq!(kubelet.admit("trainer", "main", WIDGET, 1).await.unwrap(), before);
    let other = kubelet.admit("other", "main", WIDGET, 1).await.unwrap();
    assert_ne!(
        other.device_ids, before.device_ids,
        "a device held before the restart is still held"
    );
}

#[tokio::test]
async fn first_resource_keeps_an_environment_variable() {
    let (_dir, kubelet, _plugin) = node(widgets(1), Behaviour::default()).await;
    let socket = kubelet.device_plugin_dir().join("gadgets.sock");
    let _gadgets = Plugin::serve(socket, vec![healthy("g-0")], Behaviour::default()).await;
    let registration = gpu_kubelet::Registration::new("gadgets.sock", "example.com/gadget");
    gpu_kubelet::register(kubelet.registration_socket(), &registration, SOON)
        .await
        .unwrap();
    kubelet
        .wait_for_allocatable("example.com/gadget", 1, SOON)
        .await
        .unwrap();

    kubelet.admit("trainer", "main", "example.com/gadget", 1).await.unwrap();
    kubelet.admit("trainer", "main", WIDGET, 1).await.unwrap();

    let options = kubelet.start_container("trainer", "main").await.unwrap();
    assert_eq!(options.envs["WIDGETS"], "g-0");
    assert_eq!(
        options.conflicts,
        ["environment variable `WIDGETS` stays `g-0` and does not become `w-0`"]
    );
}

#[tokio::test]
async fn pre_start_is_called_where_wanted_and_can_fail_the_start() {
    let pre_start_error = Some("too hot".to_owned());
    let options = DevicePluginOptions {
        pre_start_required: true,
        ..Default::default()
    };
    let behaviour = Behaviour {
        options,
        pre_start_error: pre_start_error.clone(),
        ..Default::default()
    };
    let (_dir, kubelet, _plugin) = node(widgets(1), behaviour).await;
    kubelet.admit("trainer", "main", WIDGET, 1).await.unwrap();
    check_text(
        kubelet.start_container("trainer", "main").await,
        "device plugin PreStartContainer rpc failed with err: \
         rpc error: code = FailedPrecondition desc = too hot: w-0",
    );

    let behaviour = Behaviour {
        pre_start_error,
        ..Default::default()
    };
    let (_dir, kubelet, _plugin) = node(widgets(1), behaviour).await;
    kubelet.admit("trainer", "main", WIDGET, 1).await.unwrap();
    kubelet.start_container("trainer", "main").await.unwrap();
}

#[tokio::test]
async fn devices_are_offered_in_an_order_that_the_seed_decides() {
    let offered = async |seed| {
        let reseed = |config: &mut Config| config.seed = seed;
        let (_dir, kubelet, _plugin) = node_with(widgets(8), Behaviour::preferring(&[]), reseed).await;
        kubelet.admit("trainer", "main", WIDGET, 1).await.expect("an admission");
        preferences(&kubelet).pop().expect("a question").1
    };
    let (first, again, other) = (offered(1).await, offered(1).await, offered(2).await);

    assert_eq!(first, again);
    assert_ne!(first, other);
    let sorted: Vec<_> = widgets(8).into_iter().map(|device| device.id).collect();
    assert_ne!(first, sorted);
    let mut sorted_again = first;
    sorted_again.sort();
    assert_eq!(sorted_again, sorted);
}

#[tokio::test]
async fn containers_that_come_at_once_get_different_devices() {
    let (_dir, kubelet, _plugin) = node(widgets(3), Behaviour::preferring(&["w-0"])).await;

    let admit = |pod: &'static str| kubelet.admit(pod, "main", WIDGET, 1);
    let (first, second, third, refused) = tokio::join!(admit("a"), admit("b"), admit("c"), admit("d"));

    let ids = [first, second, third].map(|admission| admission.unwrap().device_ids);
    assert_eq!(BTreeSet::from(ids).len(), 3);
    check_text(
        refused,
        "requested number of devices unavailable for example.com/widget. Requested: 1, Available: 0",
    );
}

#[tokio::test]
async fn stopped_kubelet_admits_nothing() {
    let (_dir, kubelet, _plugin) = node(widgets(1), Behaviour::default()).await;

    kubelet.stop().await;

    check_text(
        kubelet.admit("trainer", "main", WIDGET, 1).await,
        "the kubelet is stopped",
    );
}
