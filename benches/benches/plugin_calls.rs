//! What the kubelet asks of the device plugin: which GPUs go together, what a container gets, the list after a change.
//!
//! The node is simulated: 16 A100 for the choice, 8 H100 otherwise. `Allocate` and the list go over the plugin's socket, to a client
//! in this process; their 99th percentiles are printed, since a mean hides what a pod waits for.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::{Criterion, criterion_group, criterion_main};
use gpu_kubelet::{
    connect,
    device_plugin::{AllocateRequest, ContainerAllocateRequest, DevicePluginClient, Empty},
    double::{Config, Kubelet},
    tonic::transport::Channel,
};
use gpu_plugin::{
    GpuResource, Node, NodeConfig, OfferedDevice, Resource, ResourceSet, Sockets,
    gpu_core::nvml::LibrarySearch,
    gpu_sharing::config::{Config as Settings, ConfigFile, Flags, Options, Reading},
    names::GPU_RESOURCE,
    serve,
};
use gpu_sim::NodeSpec;
use tokio::{runtime::Runtime, task::JoinHandle};

const SOON: Duration = Duration::from_secs(10);
const CALLS: usize = 1000;
const CHANGES: usize = 500;

fn node(spec: &NodeSpec, replicas: Option<u32>) -> (tempfile::TempDir, Node) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let simulated = gpu_sim::Node::create(spec, folder.path().join("node")).expect("a node");
    let sharing =
        |replicas| format!("sharing: {{ timeSlicing: {{ resources: [{{ name: gpu, replicas: {replicas} }}] }} }}");
    let text = replicas.map(sharing).unwrap_or_default();
    let (file, _) = ConfigFile::parse(&text, Reading::Strict).expect("a configuration");
    let (settings, _) = Settings::resolve(file, Flags::default(), Options::default());
    let config = NodeConfig {
        config: settings,
        library: LibrarySearch {
            library: Some(simulated.library()),
            driver_root: None,
        },
        host_root: simulated.root(),
        ..NodeConfig::default()
    };
    let node = Node::discover(&config).expect("the node is read");
    (folder, node)
}

fn resource(node: &Node) -> (ResourceSet, GpuResource) {
    let set = node.resources()[0].clone();
    (set.clone(), GpuResource::new(set, node.how().clone()))
}

fn calls(criterion: &mut Criterion) {
    let (_folder, sixteen) = node(&NodeSpec::new("a100-16"), None);
    let (set, gpus) = resource(&sixteen);
    let all: Vec<_> = set
        .devices
        .iter()
        .flat_map(OfferedDevice::ids)
        .map(String::from)
        .collect();
    assert_eq!(all.len(), 16);
    for size in [2, 4, 8] {
        criterion.bench_function(&format!("GetPreferredAllocation {size} of 16 GPUs"), |bencher| {
            bencher.iter(|| gpus.preferred(&all, &[], size));
        });
    }

    let (_folder, shared) = node(&NodeSpec::new("h100"), Some(100));
    let (set, replicas) = resource(&shared);
    let ids: Vec<_> = set
        .devices
        .iter()
        .flat_map(OfferedDevice::ids)
        .map(String::from)
        .collect();
    assert_eq!(ids.len(), 800);
    criterion.bench_function("GetPreferredAllocation 4 of 8 x 100 replicas", |bencher| {
        bencher.iter(|| replicas.preferred(&ids, &[], 4));
    });
    criterion.bench_function("another offer, 8 x 100 replicas", |bencher| {
        bencher.iter(|| replicas.offer(set.clone(), shared.how().clone(), |_| true));
    });
    criterion.bench_function("Allocate, in memory", |bencher| {
        bencher.iter(|| replicas.allocate(&ids[..1]).expect("a known device"));
    });
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        list_update_over_the_socket(&shared).await;
        allocate_over_the_socket(&shared).await;
    });
}

/// A plugin that serves a node's resource to a kubelet double, and another client of it.
struct Served {
    _folder: tempfile::TempDir,
    _kubelet: Kubelet,
    plugin: JoinHandle<gpu_plugin::Result<()>>,
    set: ResourceSet,
    resource: Arc<GpuResource>,
    client: DevicePluginClient<Channel>,
}

impl Served {
    async fn new(node: &Node) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let kubelet = Kubelet::start(Config::in_dir(folder.path())).await.expect("a kubelet");
        let (set, resource) = resource(node);
        let resource = Arc::new(resource);
        let sockets = Sockets {
            kubelet: kubelet.registration_socket(),
            pod_resources: None,
        };
        let served = Arc::clone(&resource);
        let plugin = tokio::spawn(async move { serve(served, &sockets, std::future::pending()).await });
        kubelet
            .wait_for_allocatable(GPU_RESOURCE, set.len(), SOON)
            .await
            .expect("the list arrives");
        let socket = kubelet.device_plugin_dir().join(set.name.socket_name());
        let channel = connect(&socket).await.expect("the plugin serves");
        let mut client = DevicePluginClient::new(channel);
        client.get_device_plugin_options(Empty {}).await.expect("it answers");
        Self {
            _folder: folder,
            _kubelet: kubelet,
            plugin,
            set,
            resource,
            client,
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.plugin.abort();
    }
}

/// Prints the least, the median and the 99th percentile of as many times.
fn print_times(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let count = times.len();
    let (least, median, p99) = (times[0], times[count / 2], times[count * 99 / 100]);
    println!("{what}, {count} times: least {least:?}, median {median:?}, p99 {p99:?}");
}

async fn allocate_over_the_socket(node: &Node) {
    let mut served = Served::new(node).await;
    let request = AllocateRequest {
        container_requests: vec![ContainerAllocateRequest {
            device_ids: served.set.devices[0].ids().take(1).map(String::from).collect(),
        }],
    };
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let started = Instant::now();
        served.client.allocate(request.clone()).await.expect("it answers");
        times.push(started.elapsed());
    }
    print_times("Allocate over the socket", times);
}

/// From the change of a GPU's health to the list at a client. The kubelet double gets each list as well.
async fn list_update_over_the_socket(node: &Node) {
    let mut served = Served::new(node).await;
    let lists = served.client.list_and_watch(Empty {}).await.expect("it answers");
    let mut lists = lists.into_inner();
    let first = lists.message().await.expect("a list").expect("a list");
    assert_eq!(first.devices.len(), 800);
    let mut times = Vec::with_capacity(CHANGES);
    for change in 0..CHANGES {
        let healthy = change % 2 == 1;
        let started = Instant::now();
        served.resource.set_health(|device| healthy || device.index != "3");
        let list = lists.message().await.expect("a list").expect("a list");
        times.push(started.elapsed());
        let ill = list.devices.iter().filter(|device| device.health != "Healthy");
        assert_eq!(ill.count(), if healthy { 0 } else { 100 });
    }
    print_times("a list of 8 x 100 replicas after a change of health", times);
}

criterion_group!(benches, calls);
criterion_main!(benches);
