//! From the start of the device plugin to the kubelet's first list, on a simulated node with 8 H100.
//!
//! The references in the same run: reading the GPUs alone (what NVML costs), and a plugin that offers a constant list (what
//! the gRPC server, the registration and the kubelet double cost).

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::{Criterion, criterion_group, criterion_main};
use gpu_core::nvml::{Library, LibrarySearch};
use gpu_kubelet::{
    device_plugin::ContainerAllocateResponse,
    double::{Config, Kubelet},
};
use gpu_plugin::{Device, GpuResource, Node, NodeConfig, Resource, ResourceName, Sockets, names::GPU_RESOURCE, serve};
use gpu_sim::NodeSpec;
use tokio::{
    runtime::Runtime,
    sync::{oneshot, watch},
};

const GPUS: usize = 8;

/// A list that nothing was read for.
struct Constant {
    name: ResourceName,
    devices: watch::Sender<Vec<Device>>,
}

impl Constant {
    fn new() -> Self {
        let device = |n| Device {
            id: format!("GPU-{n}"),
            healthy: true,
            numa_node: Some(0),
        };
        let name = GPU_RESOURCE.parse().expect("a valid name");
        Self {
            name,
            devices: watch::Sender::new((0..GPUS).map(device).collect()),
        }
    }
}

impl Resource for Constant {
    fn name(&self) -> &ResourceName {
        &self.name
    }

    fn devices(&self) -> watch::Receiver<Vec<Device>> {
        self.devices.subscribe()
    }

    fn allocate(&self, _: &[String]) -> Result<ContainerAllocateResponse, String> {
        Ok(ContainerAllocateResponse::default())
    }
}

/// The time until the kubelet has the list. Ending the plugin is not counted.
async fn until_listed<R: Resource, K>(kubelet: &Kubelet, start: impl FnOnce() -> (Arc<R>, K)) -> Duration {
    let sockets = Sockets {
        kubelet: kubelet.registration_socket(),
        pod_resources: None,
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let started = Instant::now();
    let (resource, kept) = start();
    let plugin = tokio::spawn(async move {
        serve(resource, &sockets, async {
            let _ = stopped.await;
        })
        .await
    });
    kubelet
        .wait_for_allocatable(GPU_RESOURCE, GPUS, Duration::from_secs(10))
        .await
        .expect("the list arrives");
    let took = started.elapsed();
    drop(stop);
    plugin.await.expect("no panic").expect("no error");
    drop(kept);
    kubelet
        .wait_for_allocatable(GPU_RESOURCE, 0, Duration::from_secs(10))
        .await
        .expect("the plugin is gone");
    took
}

fn plugin_start(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let simulated =
        gpu_sim::Node::create(&NodeSpec::new("h100").gpus(GPUS), folder.path().join("node")).expect("a node");
    let search = LibrarySearch {
        library: Some(simulated.library()),
        driver_root: None,
    };
    let config = NodeConfig {
        library: search.clone(),
        host_root: simulated.root(),
        ..NodeConfig::default()
    };
    let runtime = Runtime::new().expect("a runtime");
    let kubelet = runtime
        .block_on(Kubelet::start(Config::in_dir(folder.path().join("kubelet"))))
        .expect("a kubelet");

    let mut group = criterion.benchmark_group("plugin start to first list, 8 GPUs");
    group.sample_size(20);
    group.bench_function("whole", |bencher| {
        bencher.iter_custom(|times| {
            let start = || {
                let node = Node::discover(&config).expect("the node is read");
                let resource = GpuResource::new(node.resources()[0].clone(), node.how().clone());
                (Arc::new(resource), node)
            };
            (0..times)
                .map(|_| runtime.block_on(until_listed(&kubelet, start)))
                .sum()
        });
    });
    group.bench_function("reference: constant list, no NVML", |bencher| {
        bencher.iter_custom(|times| {
            let start = || (Arc::new(Constant::new()), ());
            (0..times)
                .map(|_| runtime.block_on(until_listed(&kubelet, start)))
                .sum()
        });
    });
    group.bench_function("reference: NVML start and inventory alone", |bencher| {
        bencher.iter(|| {
            let library = Library::open(&search).expect("NVML initialises");
            library.inventory(&simulated.root()).expect("the node is read")
        });
    });
    group.finish();
}

criterion_group!(benches, plugin_start);
criterion_main!(benches);
