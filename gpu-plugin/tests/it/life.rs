//! A plugin's life beside a kubelet that comes, goes and cleans up.

use std::{fs, os::unix::net::UnixListener, path::Path, sync::Arc, time::Duration};

use gpu_plugin::{
    Device, Error, Resource, ResourceName, Sockets,
    gpu_kubelet::{
        Incoming, connect,
        device_plugin::{
            ContainerAllocateResponse, DevicePluginClient, Empty, RegisterRequest, Registration, RegistrationServer,
        },
        double::{Config, EventKind, Kubelet},
        listen,
        tonic::{Request, Response, Status, transport},
    },
    serve,
};
use tempfile::TempDir;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::timeout,
};

const WIDGET: &str = "example.com/widget";
const SOON: Duration = Duration::from_secs(10);

/// A made-up device.
struct Widgets {
    name: ResourceName,
    devices: watch::Sender<Vec<Device>>,
}

impl Widgets {
    fn new(count: usize) -> Arc<Self> {
        let device = |n| Device {
            id: format!("w{n}"),
            healthy: true,
            numa_node: None,
        };
        let devices = watch::Sender::new((0..count).map(device).collect());
        Arc::new(Self {
            name: WIDGET.parse().expect("a valid name"),
            devices,
        })
    }
}

impl Resource for Widgets {
    fn name(&self) -> &ResourceName {
        &self.name
    }

    fn devices(&self) -> watch::Receiver<Vec<Device>> {
        self.devices.subscribe()
    }

    fn allocate(&self, ids: &[String]) -> Result<ContainerAllocateResponse, String> {
        let envs = [("WIDGETS".to_owned(), ids.join(","))].into();
        Ok(ContainerAllocateResponse {
            envs,
            ..ContainerAllocateResponse::default()
        })
    }
}

/// A plugin on a task of its own, ended by `stop`.
struct Plugin {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), Error>>,
}

impl Plugin {
    fn start(widgets: &Arc<Widgets>, directory: &Path) -> Self {
        let sockets = Sockets {
            kubelet: directory.join("kubelet.sock"),
            pod_resources: None,
        };
        Self::start_with(widgets, sockets)
    }

    fn start_with(widgets: &Arc<Widgets>, sockets: Sockets) -> Self {
        let widgets = Arc::clone(widgets);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            serve(widgets, &sockets, async {
                let _ = stopped.await;
            })
            .await
        });
        Self { stop, task }
    }

    async fn stop(self) {
        drop(self.stop);
        timeout(Duration::from_secs(2), self.task)
            .await
            .expect("it stops within 2 s")
            .expect("no panic")
            .expect("no error");
    }
}

async fn kubelet(dir: &TempDir) -> Kubelet {
    Kubelet::start(Config::in_dir(dir.path()))
        .await
        .expect("the kubelet double starts")
}

#[tokio::test]
async fn a_pod_gets_devices_and_a_change_reaches_the_kubelet() {
    let dir = TempDir::new().unwrap();
    let kubelet = kubelet(&dir).await;
    let widgets = Widgets::new(3);
    let plugin = Plugin::start(&widgets, kubelet.device_plugin_dir());
    kubelet.wait_for_allocatable(WIDGET, 3, SOON).await.unwrap();

    let admission = kubelet.admit("p", "c", WIDGET, 2).await.unwrap();
    assert_eq!(admission.device_ids, ["w0", "w1"], "the plugin prefers them in order");
    assert_eq!(admission.response.envs["WIDGETS"], "w0,w1");

    widgets.devices.send_modify(|devices| devices[2].healthy = false);
    kubelet.wait_for_allocatable(WIDGET, 2, SOON).await.unwrap();
    assert_eq!(kubelet.capacity(WIDGET), Some(3));
    assert_eq!(kubelet.registrations(WIDGET), 1, "a change needs no new registration");
    plugin.stop().await;
}

#[tokio::test]
async fn a_restarted_kubelet_is_registered_with_again_by_the_same_plugin() {
    let dir = TempDir::new().unwrap();
    let kubelet = kubelet(&dir).await;
    let plugin = Plugin::start(&Widgets::new(2), kubelet.device_plugin_dir());
    kubelet.wait_for_allocatable(WIDGET, 2, SOON).await.unwrap();
    for restart in 2..=4 {
        kubelet.restart().await.unwrap();
        kubelet.wait_for_registrations(WIDGET, restart, SOON).await.unwrap();
        kubelet.wait_for_allocatable(WIDGET, 2, SOON).await.unwrap();
    }
    let refused = kubelet
        .events()
        .into_iter()
        .find(|event| matches!(event.kind, EventKind::Refused { .. }));
    assert!(refused.is_none(), "{refused:?}");
    plugin.stop().await;
}

#[tokio::test]
async fn an_absent_kubelet_is_waited_for() {
    let dir = TempDir::new().unwrap();
    // Not even the directory is there.
    let plugin = Plugin::start(&Widgets::new(1), &dir.path().join("device-plugins"));
    tokio::task::yield_now().await;
    let kubelet = kubelet(&dir).await;
    kubelet.wait_for_allocatable(WIDGET, 1, SOON).await.unwrap();
    plugin.stop().await;
}

#[tokio::test]
async fn a_stopped_plugin_leaves_no_socket_and_no_healthy_device() {
    let dir = TempDir::new().unwrap();
    let kubelet = kubelet(&dir).await;
    let plugin = Plugin::start(&Widgets::new(1), kubelet.device_plugin_dir());
    kubelet.wait_for_allocatable(WIDGET, 1, SOON).await.unwrap();
    plugin.stop().await;
    kubelet.wait_for_allocatable(WIDGET, 0, SOON).await.unwrap();
    assert!(!kubelet.device_plugin_dir().join("example-widget.sock").exists());
}

#[tokio::test]
async fn a_socket_that_a_dead_plugin_left_is_replaced() {
    let dir = TempDir::new().unwrap();
    let kubelet = kubelet(&dir).await;
    let socket = kubelet.device_plugin_dir().join("example-widget.sock");
    drop(UnixListener::bind(&socket).unwrap());
    let plugin = Plugin::start(&Widgets::new(1), kubelet.device_plugin_dir());
    kubelet.wait_for_allocatable(WIDGET, 1, SOON).await.unwrap();
    plugin.stop().await;
}

#[tokio::test]
async fn a_removed_socket_is_made_and_registered_anew() {
    let dir = TempDir::new().unwrap();
    let kubelet = kubelet(&dir).await;
    let plugin = Plugin::start(&Widgets::new(1), kubelet.device_plugin_dir());
    kubelet.wait_for_allocatable(WIDGET, 1, SOON).await.unwrap();
    fs::remove_file(kubelet.device_plugin_dir().join("example-widget.sock")).unwrap();
    kubelet.wait_for_registrations(WIDGET, 2, SOON).await.unwrap();
    kubelet.wait_for_allocatable(WIDGET, 1, SOON).await.unwrap();
    plugin.stop().await;
}

#[tokio::test]
async fn a_plugin_that_serves_already_is_waited_for() {
    let dir = TempDir::new().unwrap();
    let kubelet = kubelet(&dir).await;
    let first = Plugin::start(&Widgets::new(1), kubelet.device_plugin_dir());
    kubelet.wait_for_allocatable(WIDGET, 1, SOON).await.unwrap();
    let second = Plugin::start(&Widgets::new(5), kubelet.device_plugin_dir());
    tokio::time::sleep(Duration::from_millis(50)).await; // long enough for it to find the socket taken
    first.stop().await;
    kubelet.wait_for_allocatable(WIDGET, 5, SOON).await.unwrap();
    second.stop().await;
}

#[tokio::test]
async fn a_file_in_the_place_of_the_socket_is_named_and_left_alone() {
    let dir = TempDir::new().unwrap();
    let kubelet = kubelet(&dir).await;
    let path = kubelet.device_plugin_dir().join("example-widget.sock");
    fs::write(&path, "mine").unwrap();
    let sockets = Sockets {
        kubelet: kubelet.registration_socket(),
        pod_resources: None,
    };
    let error = serve(Widgets::new(1), &sockets, std::future::pending())
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), format!("cannot serve on `{}`", path.display()));
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[tokio::test]
async fn a_plugin_that_is_dropped_leaves_no_server_behind() {
    let dir = TempDir::new().unwrap();
    let kubelet = kubelet(&dir).await;
    let plugin = Plugin::start(&Widgets::new(1), kubelet.device_plugin_dir());
    kubelet.wait_for_allocatable(WIDGET, 1, SOON).await.unwrap();
    plugin.task.abort(); // drops the future of `serve`
    kubelet.wait_for_allocatable(WIDGET, 0, SOON).await.unwrap();
    assert!(!kubelet.device_plugin_dir().join("example-widget.sock").exists());
}

/// A kubelet that listens to a plugin for a moment and then forgets it, as happens when its connection breaks.
struct Forgetful {
    directory: std::path::PathBuf,
    registered: mpsc::UnboundedSender<usize>,
}

#[gpu_plugin::gpu_kubelet::tonic::async_trait]
impl Registration for Forgetful {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let socket = self.directory.join(request.into_inner().endpoint);
        let registered = self.registered.clone();
        let channel = connect(&socket).await.expect("the plugin serves before it registers");
        tokio::spawn(async move {
            let mut client = DevicePluginClient::new(channel);
            let mut lists = client.list_and_watch(Empty {}).await.expect("it lists").into_inner();
            let list = lists.message().await.expect("a list").expect("a first one");
            let _ = registered.send(list.devices.len());
        });
        Ok(Response::new(Empty {}))
    }
}

#[tokio::test]
async fn a_kubelet_that_no_longer_listens_is_registered_with_again() {
    let dir = TempDir::new().unwrap();
    let (registered, mut registrations) = mpsc::unbounded_channel();
    let incoming: Incoming = listen(dir.path().join("kubelet.sock")).await.unwrap();
    let kubelet = RegistrationServer::new(Forgetful {
        directory: dir.path().to_owned(),
        registered,
    });
    let serving = transport::Server::builder().serve_with_incoming_shutdown(kubelet, incoming, std::future::pending());
    tokio::spawn(serving);
    let plugin = Plugin::start(&Widgets::new(2), dir.path());
    for _ in 0..2 {
        assert_eq!(timeout(SOON, registrations.recv()).await.unwrap(), Some(2));
    }
    plugin.stop().await;
}

#[tokio::test]
async fn a_kubelet_that_listens_and_knows_no_device_is_registered_with_again() {
    let dir = TempDir::new().unwrap();
    let kubelet = kubelet(&dir).await;
    let sockets = Sockets {
        kubelet: kubelet.registration_socket(),
        pod_resources: Some(kubelet.pod_resources_socket().to_owned()),
    };
    let widgets = Widgets::new(2);
    let plugin = Plugin::start_with(&widgets, sockets);
    kubelet.wait_for_allocatable(WIDGET, 2, SOON).await.unwrap();
    kubelet.lose(WIDGET);
    assert_eq!(kubelet.allocatable(WIDGET), None);
    let asked_twice = 3 * SOON;
    kubelet.wait_for_registrations(WIDGET, 2, asked_twice).await.unwrap();
    kubelet.wait_for_allocatable(WIDGET, 2, SOON).await.unwrap();

    // Nothing is lost while no device is healthy, and the kubelet knows none either.
    widgets
        .devices
        .send_modify(|devices| devices.iter_mut().for_each(|device| device.healthy = false));
    kubelet.wait_for_allocatable(WIDGET, 0, SOON).await.unwrap();
    tokio::time::sleep(Duration::from_secs(12)).await; // for two answers
    assert_eq!(kubelet.registrations(WIDGET), 2);
    plugin.stop().await;
}
