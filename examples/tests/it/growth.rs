//! Whether the device plugin grows with what it does.

use std::{fs, path::PathBuf, time::Duration};

use gpu_kubelet::{
    connect,
    device_plugin::{AllocateRequest, ContainerAllocateRequest, DevicePluginClient, Empty},
    double::{Config, Kubelet},
    tonic::{Streaming, transport::Channel},
};
use gpu_sim::{Node, NodeSpec};
use rustix::process::Signal;

use super::{LONG, Running, program};

const ALLOCATES: usize = 100_000;
const RELOADS: usize = 10_000;

/// Of each, before it is measured: caches fill, and the allocator takes what it needs.
const WARM_UP: usize = 1_000;

/// What the allocator may keep between two measurements.
const SLACK_KIB: u64 = 1024;

/// Before a measurement: the runtime's threads for calls that block end once they were idle for ten seconds.
const REST: Duration = Duration::from_secs(12);

const RESOURCE: &str = "nvidia.com/gpu";

struct Plugin {
    process: Running,
    client: DevicePluginClient<Channel>,
    lists: Streaming<gpu_kubelet::device_plugin::ListAndWatchResponse>,
    config: PathBuf,
}

/// What a process has of the system.
#[derive(Debug, PartialEq, Eq)]
struct Size {
    resident_kib: u64,
    threads: u64,
    files: usize,
}

impl Plugin {
    /// Its size at rest.
    async fn size(&self) -> Size {
        tokio::time::sleep(REST).await;
        let folder = PathBuf::from(format!("/proc/{}", self.process.id().as_raw_pid()));
        let status = fs::read_to_string(folder.join("status")).expect("it runs");
        let number = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            let word = line.and_then(|line| line.split_whitespace().next());
            word.and_then(|word| word.parse().ok()).expect("a number")
        };
        Size {
            resident_kib: number("VmRSS:"),
            threads: number("Threads:"),
            files: fs::read_dir(folder.join("fd")).expect("it runs").count(),
        }
    }

    async fn allocate(&mut self, times: usize) {
        let list = self
            .client
            .list_and_watch(Empty {})
            .await
            .expect("it lists")
            .into_inner()
            .message()
            .await;
        let devices = list.expect("a list").expect("a first one").devices;
        for n in 0..times {
            let container = ContainerAllocateRequest {
                device_ids: vec![devices[n % devices.len()].id.clone()],
            };
            let request = AllocateRequest {
                container_requests: vec![container],
            };
            self.client.allocate(request).await.expect("it allocates");
        }
    }

    /// Gives it a new configuration each time, and waits until that is in force.
    async fn reload(&mut self, times: usize) {
        for n in 0..times {
            let replicas = 2 + n % 2;
            let text = format!("sharing: {{ timeSlicing: {{ resources: [{{ name: gpu, replicas: {replicas} }}] }} }}");
            let new = self.config.with_extension("new");
            fs::write(&new, text)
                .and_then(|()| fs::rename(&new, &self.config))
                .expect("a file");
            self.process.signal(Signal::HUP);
            let in_force = async {
                loop {
                    let list = self.lists.message().await.expect("it lists").expect("another list");
                    if list.devices.len() == 4 * replicas {
                        return;
                    }
                }
            };
            tokio::time::timeout(LONG, in_force).await.expect("in time");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: .ci/full runs it"]
async fn it_does_not_grow_by_what_it_does() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = Node::create(&NodeSpec::new("h100").gpus(4), folder.path().join("node")).expect("a simulated node");
    let kubelet = Kubelet::start(Config::in_dir(folder.path())).await.expect("it starts");
    let config = folder.path().join("config.yaml");
    fs::write(&config, "").expect("a file");
    let mut command = program(env!("CARGO_BIN_EXE_gpu-device-plugin"));
    command
        .envs(node.env())
        .env("KUBELET_SOCKET", kubelet.registration_socket())
        .env("CONFIG_FILE", &config)
        .env("DEVICE_LIST_STRATEGY", "envvar")
        .env("RUST_LOG", "error");
    let process = Running::start(&mut command);
    kubelet
        .wait_for_allocatable(RESOURCE, 4, LONG)
        .await
        .expect("it offers its GPUs");
    let socket = kubelet.device_plugin_dir().join("nvidia-gpu.sock");
    let mut client = DevicePluginClient::new(connect(socket).await.expect("it listens"));
    let lists = client.list_and_watch(Empty {}).await.expect("it lists").into_inner();
    // What the kubelet double remembers is its own; it has seen enough.
    kubelet.stop().await;
    let mut plugin = Plugin {
        process,
        client,
        lists,
        config,
    };
    plugin.allocate(WARM_UP).await;
    plugin.reload(WARM_UP).await;
    let before = plugin.size().await;
    plugin.allocate(ALLOCATES).await;
    let between = plugin.size().await;
    plugin.reload(RELOADS).await;
    let after = plugin.size().await;
    let text = format!("{ALLOCATES} Allocates, then {RELOADS} reloads: {before:?}, {between:?}, {after:?}");
    // To be read by whoever runs it; nothing else says the figures.
    fs::write(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("growth.txt"), &text).expect("a file");
    for (from, to) in [(&before, &between), (&between, &after)] {
        assert!(to.resident_kib <= from.resident_kib + SLACK_KIB, "{text}");
        assert!(to.threads <= from.threads + 1 && to.files <= from.files + 1, "{text}");
    }
}
