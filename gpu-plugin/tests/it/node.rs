//! The GPUs of simulated nodes, good and bad, offered to a kubelet double.

use std::{fs, sync::Arc, time::Duration};

use gpu_plugin::{
    Error, Node, NodeConfig, Sockets, Status, gpu_cdi, gpu_kubelet::double::Kubelet,
    gpu_sharing::config::DeviceIdStrategy, names::GPU_RESOURCE, run,
};
use gpu_sim::NodeSpec;
use tokio::{
    sync::{Notify, oneshot, watch},
    task::JoinHandle,
    time::timeout,
};

use super::place::Place;

pub(super) const SOON: Duration = Duration::from_secs(10);

/// `run` on a task of its own.
pub(super) struct Plugin {
    pub(super) configs: Arc<watch::Sender<NodeConfig>>,
    pub(super) status: Arc<watch::Sender<Status>>,
    pub(super) reload: Arc<Notify>,
    stop: oneshot::Sender<()>,
    pub(super) task: JoinHandle<Result<(), Error>>,
}

impl Plugin {
    pub(super) fn start(config: NodeConfig, kubelet: &Kubelet) -> Self {
        Self::told(config, kubelet, false)
    }

    /// The kubelet may tell what it knows and what pods have.
    pub(super) fn told(config: NodeConfig, kubelet: &Kubelet, told: bool) -> Self {
        let sockets = Sockets {
            kubelet: kubelet.registration_socket(),
            pod_resources: told.then(|| kubelet.pod_resources_socket().to_owned()),
        };
        let (configs, status) = (Arc::new(watch::Sender::new(config)), Arc::<watch::Sender<_>>::default());
        let reload = Arc::new(Notify::new());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn({
            let (configs, status, reload) = (configs.subscribe(), Arc::clone(&status), Arc::clone(&reload));
            async move {
                let stopped = async {
                    let _ = stopped.await;
                };
                run(configs, &sockets, &reload, &status, stopped).await
            }
        });
        Self {
            configs,
            status,
            reload,
            stop,
            task,
        }
    }

    pub(super) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    pub(super) fn configure(&self, config: NodeConfig) {
        self.configs.send_replace(config);
    }

    pub(super) async fn stop(self) {
        drop(self.stop);
        let ended = timeout(Duration::from_secs(2), self.task).await;
        ended
            .expect("it stops within 2 s")
            .expect("no panic")
            .expect("no error");
    }
}

fn message(error: &Error) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// With `fail_on_init_error`: one error, and no CDI file. Without: it is waited for, and the kubelet hears nothing, until it
/// is mended.
async fn check_waited_for(place: &Place, break_it: impl Fn(&mut NodeConfig), says: &str, mend: impl FnOnce()) {
    let mut config = place.config();
    break_it(&mut config);
    let error = message(&Node::discover(&config).expect_err("the node cannot be read"));
    assert!(error.contains(says), "{error}");
    let kubelet = place.kubelet().await;
    let failing = timeout(SOON, Plugin::start(config, &kubelet).task).await;
    assert_eq!(
        message(&failing.expect("soon").expect("no panic").expect_err("it fails")),
        error
    );
    assert_eq!(place.cdi_files(), 0);

    let mut config = place.patient();
    break_it(&mut config);
    let plugin = Plugin::start(config, &kubelet);
    tokio::time::sleep(Duration::from_millis(200)).await; // long enough to fail
    assert!(!plugin.task.is_finished());
    assert_eq!(kubelet.registrations(GPU_RESOURCE), 0);
    mend();
    plugin.reload.notify_one();
    kubelet
        .wait_for_allocatable(GPU_RESOURCE, 4, SOON)
        .await
        .expect("in time");
    assert!(place.cdi_file().exists());
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gpus_are_offered_and_one_with_an_xid_is_not() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(place.config(), &kubelet);
    kubelet.wait_for_allocatable(GPU_RESOURCE, 4, SOON).await.unwrap();
    place.node.inject_xid(0, 13).unwrap(); // an application's
    place.node.inject_xid(2, 79).unwrap();
    kubelet.wait_for_allocatable(GPU_RESOURCE, 3, SOON).await.unwrap();
    let unhealthy: Vec<_> = kubelet
        .devices(GPU_RESOURCE)
        .into_iter()
        .filter(|device| device.health != "Healthy")
        .collect();
    assert_eq!(unhealthy.len(), 1);
    assert_eq!(unhealthy[0].id, place.node.gpus()[2].uuid);
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_forgets_what_happened_on_a_plugin_that_stays_registered() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let mut config = place.config();
    config.health.quiet = Duration::from_millis(300);
    config.health.probe_interval = Duration::from_millis(100);
    let plugin = Plugin::start(config, &kubelet);
    kubelet.wait_for_allocatable(GPU_RESOURCE, 4, SOON).await.unwrap();

    place.node.inject_xid(0, 79).unwrap();
    kubelet.wait_for_allocatable(GPU_RESOURCE, 3, SOON).await.unwrap();
    plugin.reload.notify_one();
    kubelet.wait_for_allocatable(GPU_RESOURCE, 4, SOON).await.unwrap();

    // A GPU that is lost stays in the list all the same, and comes back by itself.
    place.node.inject_xid(0, 79).unwrap();
    kubelet.wait_for_allocatable(GPU_RESOURCE, 3, SOON).await.unwrap();
    place.node.lose(3).unwrap();
    kubelet.wait_for_allocatable(GPU_RESOURCE, 2, SOON).await.unwrap();
    let lists = kubelet.events().len();
    plugin.reload.notify_one();
    kubelet.wait_for_allocatable(GPU_RESOURCE, 3, SOON).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await; // longer than a GPU would have to be sound
    assert_eq!(
        (kubelet.allocatable(GPU_RESOURCE), kubelet.capacity(GPU_RESOURCE)),
        (Some(3), Some(4))
    );
    assert_eq!(
        kubelet.events().len(),
        lists + 1,
        "one list, in which the lost one is unhealthy"
    );
    place.node.restore(3).unwrap();
    kubelet.wait_for_allocatable(GPU_RESOURCE, 4, SOON).await.unwrap();

    // What cannot be read changes nothing, and health is watched on.
    fs::rename(place.node.root().join("usr"), place.node.root().join("away")).unwrap();
    plugin.reload.notify_one();
    place.node.inject_xid(1, 79).unwrap();
    kubelet.wait_for_allocatable(GPU_RESOURCE, 3, SOON).await.unwrap();
    assert_eq!(kubelet.registrations(GPU_RESOURCE), 1);
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_that_is_lost_at_discovery_is_named_and_the_others_are_offered() {
    let place = Place::new();
    place.node.lose(1).unwrap();
    let node = Node::discover(&place.config()).unwrap();
    assert!(node.problems()[0].starts_with("GPU 1"), "{:?}", node.problems());
    drop(node);
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(place.config(), &kubelet);
    kubelet.wait_for_allocatable(GPU_RESOURCE, 3, SOON).await.unwrap();
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_of_another_version_is_an_error_or_waited_for() {
    let place = Place::new();
    place.node.set_init_error(Some(18)).unwrap();
    let mend = || place.node.set_init_error(None).unwrap();
    check_waited_for(&place, |_| (), "driver/library version mismatch", mend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_library_is_an_error_or_waited_for() {
    let place = Place::new();
    let later = place.dir.path().join("libnvidia-ml.so.1");
    let missing = |config: &mut NodeConfig| config.library.library = Some(later.clone());
    let mend = || {
        fs::copy(place.node.library(), &later).unwrap();
    };
    check_waited_for(&place, missing, "no NVIDIA driver library", mend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_library_that_is_no_library_is_an_error_or_waited_for() {
    let place = Place::new();
    let library = place.dir.path().join("libnvidia-ml.so.1");
    fs::write(&library, "half of it").unwrap();
    let unusable = |config: &mut NodeConfig| config.library.library = Some(library.clone());
    let mend = || {
        fs::remove_file(&library).unwrap();
        fs::copy(place.node.library(), &library).unwrap();
    };
    check_waited_for(&place, unusable, "cannot load the NVIDIA driver library", mend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_root_without_driver_is_an_error_or_waited_for() {
    let place = Place::new();
    let (usr, away) = (place.node.root().join("usr"), place.node.root().join("away"));
    fs::rename(&usr, &away).unwrap();
    let mend = || fs::rename(&away, &usr).unwrap();
    check_waited_for(&place, |_| (), "no NVIDIA driver libraries", mend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cdi_folder_that_cannot_be_made_is_an_error_or_waited_for() {
    let place = Place::new();
    let in_the_way = place.dir.path().join("cdi");
    fs::write(&in_the_way, "no folder").unwrap();
    let mend = || fs::remove_file(&in_the_way).unwrap();
    check_waited_for(&place, |_| (), "cannot create the CDI folder", mend).await;
}

#[test]
fn a_library_without_a_function_is_named_with_it() {
    let place = Place::new();
    let mut config = place.config();
    config.library.library = Some("libc.so.6".into());
    let error = Node::discover(&config).unwrap_err();
    assert_eq!(message(&error), "the library `libc.so.6` has no function `nvmlInit_v2`");
    assert_eq!(place.cdi_files(), 0);
}

/// Nothing to offer is no error, whatever `fail_on_init_error` says: no file, no registration, and it is looked at again.
async fn check_nothing_to_offer(place: &Place, says: &str, mend: impl FnOnce()) {
    let node = Node::discover(&place.config()).expect("no error");
    assert!(node.is_empty());
    assert!(
        node.problems().iter().any(|problem| problem.contains(says)) || says.is_empty(),
        "{:?}",
        node.problems()
    );
    drop(node);
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(place.config(), &kubelet);
    tokio::time::sleep(Duration::from_millis(200)).await; // long enough to look
    assert_eq!((place.cdi_files(), kubelet.registrations(GPU_RESOURCE)), (0, 0));
    mend();
    plugin.reload.notify_one();
    let offered = |kubelet: &Kubelet| kubelet.allocatable(GPU_RESOURCE).is_some_and(|count| count > 0);
    kubelet
        .wait_until("GPUs are offered", SOON, offered)
        .await
        .expect("in time");
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn partitioned_gpus_alone_are_nothing_to_offer() {
    let place = Place::with(&NodeSpec::new("h100").gpus(1));
    place.node.set_mig_mode(0, true).unwrap();
    let mend = || {
        place.node.set_mig_mode(0, false).unwrap();
    };
    check_nothing_to_offer(&place, "MIG", mend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gpus_without_device_nodes_are_nothing_to_offer() {
    let place = Place::with(&NodeSpec::new("h100").gpus(1));
    let (node, away) = (place.node.root().join("dev/nvidia0"), place.node.root().join("away"));
    fs::rename(&node, &away).unwrap();
    let mend = || fs::rename(&away, &node).unwrap();
    check_nothing_to_offer(&place, "has no device node `/dev/nvidia0`", mend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_gpus_alone_are_nothing_to_offer() {
    let place = Place::with(&NodeSpec::new("h100").gpus(1));
    place.node.lose(0).unwrap();
    let mend = || place.node.restore(0).unwrap();
    check_nothing_to_offer(&place, "is lost", mend).await;
}

#[test]
fn a_node_without_gpus_is_nothing_to_offer() {
    let place = Place::with(&NodeSpec::new("h100").gpus(0));
    let node = Node::discover(&place.config()).unwrap();
    assert!(node.is_empty());
    assert_eq!((node.problems().len(), place.cdi_files()), (0, 0));
}

#[test]
fn hooks_can_be_left_out_of_the_file() {
    let place = Place::new();
    let mut config = place.config();
    Node::discover(&config).unwrap();
    let all = fs::read_to_string(place.cdi_file()).unwrap();
    assert!(all.contains("enable-cuda-compat") && all.contains("update-ldcache"));
    config.disabled_hooks = gpu_cdi::HookName::parse_list("enable-cuda-compat").unwrap();
    Node::discover(&config).unwrap();
    let fewer = fs::read_to_string(place.cdi_file()).unwrap();
    assert!(!fewer.contains("enable-cuda-compat") && fewer.contains("update-ldcache"));
}

/// The kubelet keeps the names that it was told for a pod, and its containers may start again at any time.
#[test]
fn names_in_the_file_stay_when_the_strategy_of_ids_changes() {
    let names = |place: &Place| -> Vec<String> {
        let text = fs::read_to_string(place.cdi_file()).unwrap();
        let spec: serde_json::Value = serde_json::from_str(&text).unwrap();
        let devices = spec["devices"].as_array().unwrap();
        let name = |device: &serde_json::Value| device["name"].as_str().unwrap().to_owned();
        devices.iter().map(name).collect()
    };
    for (first, second) in [
        (DeviceIdStrategy::Uuid, DeviceIdStrategy::Index),
        (DeviceIdStrategy::Index, DeviceIdStrategy::Uuid),
    ] {
        let place = Place::with(&NodeSpec::new("h100").gpus(2).seed(3).permute_pci(true));
        let mut config = place.config();
        config.config.plugin.device_id_strategy = first;
        Node::discover(&config).unwrap();
        let told = names(&place);
        assert_eq!(told.len(), 2);
        config.config.plugin.device_id_strategy = second;
        for _ in 0..2 {
            let node = Node::discover(&config).unwrap();
            assert_eq!(node.resources()[0].devices.len(), 2);
            let both = names(&place);
            assert_eq!(both.len(), 4, "{both:?}");
            assert!(told.iter().all(|name| both.contains(name)), "{told:?} {both:?}");
        }
    }
}

#[test]
fn what_the_file_has_besides_the_driver_is_as_configured() {
    let place = Place::new();
    let library = place.node.root().join("usr/lib/x86_64-linux-gnu/libOpenCL.so.1");
    fs::copy(place.node.library(), library).unwrap();
    let mut config = place.config();
    let has = |config: &NodeConfig, words: &str| {
        Node::discover(config).unwrap();
        fs::read_to_string(place.cdi_file()).unwrap().contains(words)
    };
    assert!(!has(&config, "libOpenCL.so.1") && !has(&config, "gpu.nvidia.com/coherent"));
    config.driver_files.explicit_libraries = true;
    assert!(has(&config, "libOpenCL.so.1") && !has(&config, "gpu.nvidia.com/coherent"));
    config.coherent_annotations = true;
    assert!(has(&config, r#""gpu.nvidia.com/coherent":"false""#));
}
