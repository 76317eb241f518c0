//! What the kubelet asks of the device plugin: which GPUs go together, what a container gets, the list after a change.
//!
//! The node is simulated: 16 A100 for the choice, 8 H100 otherwise. `Allocate` goes over the plugin's socket, from a client in
//! this process; its 99th percentile is printed, since a mean hides what a pod waits for.

#![expect(clippy::print_stdout, reason = "a bench prints what it measured")]

use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use gpu_kubelet::{
    connect,
    device_plugin::{AllocateRequest, ContainerAllocateRequest, DevicePluginClient, Empty},
    double::{Config, Kubelet},
};
use gpu_plugin::{
    GpuResource, Node, NodeConfig, OfferedDevice, Resource, ResourceSet, Sockets,
    gpu_core::nvml::LibrarySearch,
    gpu_sharing::config::{Config as Settings, ConfigFile, Flags, Options, Reading},
    names::GPU_RESOURCE,
    serve,
};
use gpu_sim::NodeSpec;
use tokio::runtime::Runtime;

const SOON: Duration = Duration::from_secs(10);
const CALLS: usize = 1000;

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
    let all: Vec<_> = set.devices.iter().flat_map(OfferedDevice::ids).collect();
    assert_eq!(all.len(), 16);
    for size in [2, 4, 8] {
        criterion.bench_function(&format!("GetPreferredAllocation {size} of 16 GPUs"), |bencher| {
            bencher.iter(|| gpus.preferred(&all, &[], size));
        });
    }

    let (_folder, shared) = node(&NodeSpec::new("h100"), Some(100));
    let (set, replicas) = resource(&shared);
    let ids: Vec<_> = set.devices.iter().flat_map(OfferedDevice::ids).collect();
    assert_eq!(ids.len(), 800);
    criterion.bench_function("GetPreferredAllocation 4 of 8 x 100 replicas", |bencher| {
        bencher.iter(|| replicas.preferred(&ids, &[], 4));
    });
    criterion.bench_function("list update, 8 x 100 replicas", |bencher| {
        let mut healthy = true;
        bencher.iter(|| {
            healthy = !healthy;
            replicas.set_health(|device| healthy || device.index != "3");
        });
    });
    criterion.bench_function("another offer, 8 x 100 replicas", |bencher| {
        bencher.iter(|| replicas.offer(set.clone(), shared.how().clone(), |_| true));
    });
    criterion.bench_function("Allocate, in memory", |bencher| {
        bencher.iter(|| replicas.allocate(&ids[..1]).expect("a known device"));
    });
    allocate_over_the_socket(&shared);
}

/// Prints the least, the median and the 99th percentile of 1000 calls.
fn allocate_over_the_socket(node: &Node) {
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let kubelet = Kubelet::start(Config::in_dir(folder.path())).await.expect("a kubelet");
        let (set, resource) = resource(node);
        let sockets = Sockets {
            kubelet: kubelet.registration_socket(),
            pod_resources: None,
        };
        let plugin = tokio::spawn(async move { serve(resource.into(), &sockets, std::future::pending()).await });
        kubelet
            .wait_for_allocatable(GPU_RESOURCE, set.len(), SOON)
            .await
            .expect("the list arrives");
        let socket = kubelet.device_plugin_dir().join(set.name.socket_name());
        let channel = connect(&socket).await.expect("the plugin serves");
        let mut client = DevicePluginClient::new(channel);
        client.get_device_plugin_options(Empty {}).await.expect("it answers");
        let request = AllocateRequest {
            container_requests: vec![ContainerAllocateRequest {
                device_ids: set.devices[0].ids().take(1).collect(),
            }],
        };
        let mut times = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let started = Instant::now();
            client.allocate(request.clone()).await.expect("it answers");
            times.push(started.elapsed());
        }
        times.sort_unstable();
        let (least, median, p99) = (times[0], times[CALLS / 2], times[CALLS * 99 / 100]);
        println!("Allocate over the socket, {CALLS} calls: least {least:?}, median {median:?}, p99 {p99:?}");
        plugin.abort();
    });
}

criterion_group!(benches, calls);
criterion_main!(benches);
