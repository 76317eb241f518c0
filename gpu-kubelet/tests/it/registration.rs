//! Plugins come, change and go; so does the kubelet.

use std::{
    fs,
    os::unix::net::UnixListener as StdListener,
    time::{Duration, Instant},
};

use gpu_kubelet::{
    Error, Registration, connect,
    device_plugin::{DevicePluginOptions, RegisterRequest, RegistrationClient},
    double::{Config, EventKind, Kubelet, StartError},
    listen, register,
    tonic::Code,
};
use tempfile::TempDir;

use crate::plugin::{Behaviour, Plugin, SOON, WIDGET, healthy, register_widgets, unhealthy};

/// A kubelet in a directory of its own.
async fn start() -> (TempDir, Kubelet) {
    start_with(|_| {}).await
}

async fn start_with(adjust: impl FnOnce(&mut Config)) -> (TempDir, Kubelet) {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let mut config = Config::in_dir(dir.path());
    adjust(&mut config);
    let kubelet = Kubelet::start(config).await.expect("a kubelet");
    (dir, kubelet)
}

#[tokio::test]
async fn capacity_is_all_devices_and_allocatable_the_healthy_ones() {
    let (_dir, kubelet) = start().await;
    assert_eq!(
        (kubelet.allocatable(WIDGET), kubelet.capacity(WIDGET)),
        (None, None),
        "nothing listed is not zero"
    );

    let devices = vec![healthy("w-0"), unhealthy("w-1"), healthy("w-2")];
    let _plugin = Plugin::serve_and_register(&kubelet, devices.clone(), Behaviour::default()).await;

    kubelet.wait_for_allocatable(WIDGET, 2, SOON).await.unwrap();
    assert_eq!(kubelet.capacity(WIDGET), Some(3));
    assert_eq!(kubelet.devices(WIDGET), devices);
}

#[tokio::test]
async fn each_list_replaces_the_last() {
    let (_dir, kubelet) = start().await;
    let plugin = Plugin::serve_and_register(&kubelet, vec![healthy("w-0"), healthy("w-1")], Behaviour::default()).await;
    kubelet.wait_for_allocatable(WIDGET, 2, SOON).await.unwrap();

    plugin.list(vec![unhealthy("w-0"), healthy("w-1")]);
    kubelet.wait_for_allocatable(WIDGET, 1, SOON).await.unwrap();
    assert_eq!(kubelet.capacity(WIDGET), Some(2));

    plugin.list(vec![healthy("w-9"), healthy("w-8"), healthy("w-7")]);
    kubelet.wait_for_allocatable(WIDGET, 3, SOON).await.unwrap();
    assert_eq!(kubelet.capacity(WIDGET), Some(3));

    plugin.list(Vec::new());
    kubelet.wait_for_allocatable(WIDGET, 0, SOON).await.unwrap();
    assert_eq!(kubelet.capacity(WIDGET), Some(0));
}

#[tokio::test]
async fn options_are_the_plugins_answer_not_the_requests() {
    let (_dir, kubelet) = start().await;
    let _plugin = Plugin::serve(
        kubelet.device_plugin_dir().join("widgets.sock"),
        vec![healthy("w-0")],
        Behaviour::preferring(&["w-0"]),
    )
    .await;

    register_widgets(&kubelet).await; // asks for nothing

    let options = kubelet.events().into_iter().find_map(|event| match event.kind {
        EventKind::Registered { request, options, .. } => Some((request.options, options)),
        _ => None,
    });
    let offered = DevicePluginOptions {
        get_preferred_allocation_available: true,
        pre_start_required: false,
    };
    assert_eq!(options, Some((Some(DevicePluginOptions::default()), offered)));
}

#[tokio::test]
async fn plugin_that_registers_before_it_serves_is_refused_after_the_dial_timeout() {
    let (_dir, kubelet) = start_with(|config| config.dial_timeout = Duration::from_millis(80)).await;
    let registration = Registration::new("widgets.sock", WIDGET);
    let listening_but_not_serving = listen(kubelet.device_plugin_dir().join("widgets.sock")).await.unwrap();
    let absent = Registration::new("absent.sock", WIDGET);

    for registration in [&registration, &absent] {
        let started = Instant::now();
        let error = register(kubelet.registration_socket(), registration, SOON)
            .await
            .unwrap_err();

        assert!(started.elapsed() >= Duration::from_millis(80));
        assert_eq!(
            error.to_string(),
            "the kubelet refused to register `example.com/widget`: \
             failed to dial device plugin: context deadline exceeded"
        );
        assert!(!error.is_transient());
    }
    assert_eq!(kubelet.registrations(WIDGET), 0);
    drop(listening_but_not_serving);
}

#[tokio::test]
async fn plugin_that_serves_a_little_late_is_reached() {
    let (_dir, kubelet) = start().await;
    let socket = kubelet.device_plugin_dir().join("widgets.sock");

    let (_plugin, ()) = tokio::join!(
        async {
            kubelet
                .wait_until("nothing", Duration::from_millis(50), |_| false)
                .await
                .unwrap_err();
            Plugin::serve(socket, vec![healthy("w-0")], Behaviour::default()).await
        },
        register_widgets(&kubelet),
    );

    kubelet.wait_for_allocatable(WIDGET, 1, SOON).await.unwrap();
}

#[tokio::test]
async fn wrong_version_and_wrong_name_are_refused_in_the_kubelets_words() {
    let (_dir, kubelet) = start().await;
    let mut client = RegistrationClient::new(connect(kubelet.registration_socket()).await.unwrap());
    let mut refusal = async |version: &str, resource_name: &str| {
        let request = RegisterRequest {
            version: version.to_owned(),
            endpoint: "widgets.sock".to_owned(),
            resource_name: resource_name.to_owned(),
            options: None,
        };
        let status = client.register(request).await.unwrap_err();
        (status.code(), status.message().to_owned())
    };

    let unknown = Code::Unknown;
    let text = r#"requested API version "v1alpha" is not supported by kubelet. Supported version is ["v1beta1"]"#;
    assert_eq!(refusal("v1alpha", WIDGET).await, (unknown, text.to_owned()));
    let text = r#"the ResourceName "widget" is invalid"#;
    assert_eq!(refusal("v1beta1", "widget").await, (unknown, text.to_owned()));

    let refused = kubelet
        .events()
        .into_iter()
        .filter(|event| matches!(event.kind, EventKind::Refused { .. }));
    assert_eq!(refused.count(), 2);
}

#[tokio::test]
async fn ended_stream_makes_all_devices_unhealthy_at_once() {
    let (_dir, kubelet) = start().await;
    let plugin = Plugin::serve_and_register(&kubelet, vec![healthy("w-0"), healthy("w-1")], Behaviour::default()).await;
    kubelet.wait_for_allocatable(WIDGET, 2, SOON).await.unwrap();

    plugin.stop().await;

    kubelet.wait_for_allocatable(WIDGET, 0, SOON).await.unwrap();
    assert_eq!(kubelet.capacity(WIDGET), Some(2));

    let _next = Plugin::serve_and_register(&kubelet, vec![healthy("w-0"), healthy("w-1")], Behaviour::default()).await;
    kubelet.wait_for_allocatable(WIDGET, 2, SOON).await.unwrap();
}

#[tokio::test]
async fn resource_is_dropped_when_its_plugin_stays_away() {
    let (_dir, kubelet) = start_with(|config| config.stop_grace = Duration::ZERO).await;
    let plugin = Plugin::serve_and_register(&kubelet, vec![healthy("w-0")], Behaviour::default()).await;
    kubelet.wait_for_allocatable(WIDGET, 1, SOON).await.unwrap();

    plugin.stop().await;

    kubelet
        .wait_until("the drop", SOON, |kubelet| kubelet.capacity(WIDGET).is_none())
        .await
        .unwrap();
    assert_eq!(kubelet.allocatable(WIDGET), None);
}

#[tokio::test]
async fn end_of_an_old_stream_stops_the_plugin_that_took_its_place() {
    let (_dir, kubelet) = start().await;
    let old = Plugin::serve_and_register(&kubelet, vec![healthy("w-0")], Behaviour::default()).await;
    kubelet.wait_for_allocatable(WIDGET, 1, SOON).await.unwrap();
    let socket = kubelet.device_plugin_dir().join("widgets-2.sock");
    let _new = Plugin::serve(&socket, vec![healthy("w-0"), healthy("w-1")], Behaviour::default()).await;
    let registration = Registration::new("widgets-2.sock", WIDGET);
    register(kubelet.registration_socket(), &registration, SOON)
        .await
        .unwrap();
    kubelet.wait_for_allocatable(WIDGET, 2, SOON).await.unwrap();

    old.stop().await;

    kubelet.wait_for_allocatable(WIDGET, 0, SOON).await.unwrap();
    register(kubelet.registration_socket(), &registration, SOON)
        .await
        .unwrap();
    kubelet.wait_for_allocatable(WIDGET, 2, SOON).await.unwrap();
}

#[tokio::test]
async fn restart_deletes_sockets_and_nothing_else() {
    let (_dir, kubelet) = start().await;
    let plugins = kubelet.device_plugin_dir().to_owned();
    let plugin = Plugin::serve_and_register(&kubelet, vec![healthy("w-0")], Behaviour::default()).await;
    kubelet.wait_for_allocatable(WIDGET, 1, SOON).await.unwrap();
    fs::write(plugins.join("kubelet_internal_checkpoint"), "{}").unwrap();
    fs::create_dir(plugins.join("subdirectory")).unwrap();
    drop(StdListener::bind(plugins.join("stale.sock")).unwrap());

    kubelet.restart().await.unwrap();

    let mut names: Vec<_> = fs::read_dir(&plugins)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["kubelet.sock", "kubelet_internal_checkpoint", "subdirectory"]);
    plugin.wait_until_unwatched().await;
    assert_eq!(
        (kubelet.allocatable(WIDGET), kubelet.capacity(WIDGET)),
        (Some(0), Some(0))
    );
}

#[tokio::test]
async fn plugin_comes_back_after_a_restart_by_serving_and_registering_again() {
    let (_dir, kubelet) = start().await;
    let plugin = Plugin::serve_and_register(&kubelet, vec![healthy("w-0")], Behaviour::default()).await;
    kubelet.wait_for_allocatable(WIDGET, 1, SOON).await.unwrap();
    kubelet.restart().await.unwrap();

    let _new_socket = Plugin::serve_and_register(&kubelet, vec![healthy("w-0")], Behaviour::default()).await;
    plugin.stop().await; // its socket is gone already, and it must not take the new one along

    kubelet.wait_for_registrations(WIDGET, 2, SOON).await.unwrap();
    kubelet.wait_for_allocatable(WIDGET, 1, SOON).await.unwrap();
    connect(kubelet.device_plugin_dir().join("widgets.sock")).await.unwrap();
}

#[tokio::test]
async fn stopped_kubelet_is_absent_until_it_starts_again() {
    let (_dir, kubelet) = start().await;
    let _plugin = Plugin::serve_and_register(&kubelet, vec![healthy("w-0")], Behaviour::default()).await;

    kubelet.stop().await;

    let registration = Registration::new("widgets.sock", WIDGET);
    let error = register(kubelet.registration_socket(), &registration, SOON)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Absent { .. }), "{error:?}");
    kubelet.restart().await.unwrap();
    connect(kubelet.registration_socket()).await.unwrap();
}

#[tokio::test]
async fn kubelet_that_stops_during_a_registration_is_worth_waiting_for() {
    let (_dir, kubelet) = start().await;
    let registration = Registration::new("late.sock", WIDGET); // nobody serves there: the kubelet keeps trying
    let socket = kubelet.registration_socket();

    let (registered, ()) = tokio::join!(register(&socket, &registration, SOON), async {
        kubelet
            .wait_until("nothing", Duration::from_millis(50), |_| false)
            .await
            .unwrap_err();
        kubelet.stop().await;
    });

    let error = registered.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
}

#[tokio::test]
async fn dropped_kubelet_leaves_no_socket() {
    let (_dir, kubelet) = start().await;
    let socket = kubelet.registration_socket();
    assert!(socket.exists());

    drop(kubelet);

    let gone = async {
        while socket.exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, gone).await.unwrap();
}

#[tokio::test]
async fn kubelet_without_a_place_for_its_directory_says_so() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("device-plugins"), "a file").unwrap();

    let error = Kubelet::start(Config::in_dir(dir.path())).await.unwrap_err();

    assert!(matches!(error, StartError::Prepare { .. }), "{error:?}");
}

#[tokio::test]
async fn wait_in_vain_tells_what_was_seen() {
    let (_dir, kubelet) = start().await;
    let _plugin = Plugin::serve_and_register(&kubelet, vec![unhealthy("w-0")], Behaviour::default()).await;
    kubelet.wait_for_allocatable(WIDGET, 0, SOON).await.unwrap();

    let error = kubelet
        .wait_for_allocatable(WIDGET, 4, Duration::from_millis(10))
        .await
        .unwrap_err();

    let text = error.to_string();
    assert!(
        text.starts_with("waited 10ms for 4 allocatable `example.com/widget` in vain; the kubelet is running"),
        "{text}"
    );
    assert!(text.contains("`example.com/widget`: 0 of 1 healthy"), "{text}");
}
