//! Machines on which NVML does not tell GPUs apart, offered to a kubelet double.

use std::{fs, path::Path, time::Duration};

use gpu_plugin::{
    Node, NodeConfig, gpu_cdi,
    gpu_cdi::{DeviceRule, DiscoverConfig, Platform},
    gpu_kubelet::{
        device_plugin::ContainerAllocateResponse,
        double::{self, Kubelet},
    },
    gpu_sharing::config::{
        Config, ConfigFile, DeviceIdStrategy, DeviceListStrategy, DiscoveryStrategy, Flags, Options, Reading,
    },
    names::GPU_RESOURCE,
};
use gpu_sim::NodeSpec;
use tempfile::TempDir;

use super::{
    node::{Plugin, SOON},
    place::Place,
};

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, text).expect("a file");
}

const CSV: &str = "etc/nvidia-container-runtime/host-files-for-container.d/devices.csv";

/// A Tegra machine without NVML.
struct Tegra {
    dir: TempDir,
}

impl Tegra {
    fn new() -> Self {
        let machine = Self {
            dir: TempDir::new().expect("a temporary folder"),
        };
        let root = machine.root();
        write(&root, "sys/devices/soc0/family", "Tegra\n");
        write(&root, "dev/nvmap", "");
        write(&root, CSV, "dev, /dev/nvmap\n");
        machine
    }

    fn root(&self) -> std::path::PathBuf {
        self.dir.path().join("root")
    }

    fn config(&self) -> NodeConfig {
        let root = self.root();
        let mut config = NodeConfig {
            driver_files: DiscoverConfig::new(&root),
            cdi_dir: self.dir.path().join("cdi"),
            ..NodeConfig::default()
        };
        config.library.library = Some(root.join("libnvidia-ml.so.1"));
        config.driver_files.device_rule = DeviceRule::AnyFile; // only root can make device nodes
        config.driver_files.sys_root.clone_from(&root);
        config.host_root = root;
        config
    }

    async fn kubelet(&self) -> Kubelet {
        let config = double::Config::in_dir(self.dir.path().join("kubelet"));
        Kubelet::start(config).await.expect("the kubelet double starts")
    }
}

/// A machine with GPUs of Windows.
fn windows() -> Place {
    let place = Place::with(&NodeSpec::new("h100").gpus(2));
    let root = place.node.root();
    write(&root, "dev/dxg", "");
    write(&root, "usr/lib/wsl/lib/libdxcore.so", "");
    for name in [
        "libcuda.so.1.1",
        "libcuda_loader.so",
        "libnvidia-ptxjitcompiler.so.1",
        "libnvidia-ml.so.1",
        "libnvidia-ml_loader.so",
        "libnvdxgdmal.so.1",
        "nvcubins.bin",
        "nvidia-smi",
    ] {
        write(&root, &format!("usr/lib/wsl/drivers/nv.inf/{name}"), "");
    }
    place
}

/// The same with so many replicas.
fn shared(mut config: NodeConfig, replicas: usize) -> NodeConfig {
    let text = format!("sharing: {{ timeSlicing: {{ resources: [{{ name: gpu, replicas: {replicas} }}] }} }}");
    let (file, _) = ConfigFile::parse(&text, Reading::Strict).expect("a configuration");
    config.config.sharing = Config::resolve(file, Flags::default(), Options::default()).0.sharing;
    config
}

/// What a container is told, in words.
fn told(answer: &ContainerAllocateResponse) -> Vec<String> {
    let envs = answer.envs.iter().map(|(name, value)| format!("{name}={value}"));
    let mounts = answer.mounts.iter().map(|mount| mount.container_path.clone());
    let annotations = answer.annotations.iter().map(|(key, value)| {
        assert!(key.starts_with("cdi.k8s.io/nvidia-device-plugin_"), "{key}");
        format!("annotated {value}")
    });
    let cdi = answer.cdi_devices.iter().map(|device| device.name.clone());
    let nodes = answer.devices.iter();
    let nodes = nodes.map(|node| format!("{} from {}", node.container_path, node.host_path));
    envs.chain(mounts).chain(annotations).chain(cdi).chain(nodes).collect()
}

const LISTS: [DeviceListStrategy; 4] = [
    DeviceListStrategy::EnvVar,
    DeviceListStrategy::VolumeMounts,
    DeviceListStrategy::CdiAnnotations,
    DeviceListStrategy::CdiCri,
];

/// That each list strategy tells a container this, one configuration after the other, and all of it over one registration.
///
/// `name` is what the device is called, and `nodes` what containers get beside it that are not CDI's.
async fn check_answers(kubelet: &Kubelet, config: NodeConfig, ids: DeviceIdStrategy, name: &str, nodes: &[&str]) {
    let cdi = format!("k8s.device-plugin.nvidia.com/gpu={name}");
    let folder = "/var/run/nvidia-container-devices";
    let expected = [
        vec![format!("NVIDIA_VISIBLE_DEVICES={name}")],
        vec![format!("NVIDIA_VISIBLE_DEVICES={folder}"), format!("{folder}/{name}")],
        vec![format!("annotated {cdi}")],
        vec![cdi.clone()],
    ];
    let mut plugin = None;
    for (n, (list, mut expected)) in LISTS.into_iter().zip(expected).enumerate() {
        let replicas = n + 2; // another number each time, by which the kubelet sees that it is in force
        let mut config = shared(config.clone(), replicas);
        config.config.plugin.device_list_strategy = vec![list];
        config.config.plugin.device_id_strategy = ids;
        config.config.plugin.pass_device_specs = true;
        "/host".clone_into(&mut config.config.nvidia_dev_root);
        match &plugin {
            None => plugin = Some(Plugin::start(config, kubelet)),
            Some(plugin) => plugin.configure(config),
        }
        kubelet
            .wait_for_allocatable(GPU_RESOURCE, replicas, SOON)
            .await
            .unwrap_or_else(|error| panic!("{list}: {error}"));
        if !list.as_str().starts_with("cdi") {
            expected.extend(nodes.iter().map(|node| (*node).to_owned()));
        }
        let pod = format!("{list}-{ids}");
        let admission = kubelet
            .admit(&*pod, "c", GPU_RESOURCE, 1)
            .await
            .expect("it is admitted");
        assert_eq!(told(&admission.response), expected, "{list}");
        assert!(kubelet.remove_pod(&*pod));
    }
    assert_eq!(kubelet.registrations(GPU_RESOURCE), 1);
    plugin.expect("it was started").stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gpu_of_a_tegra_machine_is_offered_without_nvml() {
    for (ids, name) in [(DeviceIdStrategy::Uuid, "tegra"), (DeviceIdStrategy::Index, "0")] {
        let machine = Tegra::new();
        let kubelet = machine.kubelet().await;
        check_answers(&kubelet, machine.config(), ids, name, &[]).await;
        let spec = machine.dir.path().join("cdi").join(gpu_plugin::names::CDI_FILE);
        let spec = gpu_cdi::Spec::from_text(&fs::read_to_string(spec).unwrap(), gpu_cdi::Format::Json).unwrap();
        let devices = spec.devices.iter().map(|device| {
            let nodes = device.container_edits.device_nodes.iter();
            (device.name.as_str(), nodes.map(|node| node.path.as_str()).collect())
        });
        let expected = [("0", vec!["/dev/nvmap"]), ("tegra", vec!["/dev/nvmap"])];
        assert_eq!(devices.collect::<Vec<_>>(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gpus_of_windows_are_offered_as_one_and_not_watched() {
    let place = windows();
    let kubelet = place.kubelet().await;
    let mut config = place.config();
    config.config.device_discovery_strategy = DiscoveryStrategy::Nvml; // as by the vendor's plugin
    let nodes = ["/dev/dxg from /host/dev/dxg"];
    check_answers(&kubelet, config.clone(), DeviceIdStrategy::Uuid, "all", &nodes).await;

    config.config.device_discovery_strategy = DiscoveryStrategy::Auto;
    let plugin = Plugin::start(config, &kubelet);
    kubelet.wait_for_allocatable(GPU_RESOURCE, 1, SOON).await.unwrap();
    place.node.inject_xid(0, 79).unwrap();
    place.node.lose(1).unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await; // where they are watched, it takes less
    plugin.reload.notify_one();
    tokio::time::sleep(Duration::from_millis(500)).await; // for the reading
    assert_eq!(kubelet.allocatable(GPU_RESOURCE), Some(1));
    assert_eq!(plugin.status().problems, [""; 0]);
    let device = &kubelet.devices(GPU_RESOURCE)[0];
    assert_eq!((device.id.as_str(), &device.topology), ("all", &None));
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tegra_machine_that_cannot_be_described_has_nothing_to_offer_by_cdi() {
    let machine = Tegra::new();
    let csv = machine.root().join(CSV);
    fs::remove_file(&csv).unwrap();
    let mut config = machine.config();
    config.config.plugin.device_list_strategy = vec![DeviceListStrategy::CdiCri];
    let kubelet = machine.kubelet().await;
    let plugin = Plugin::start(config, &kubelet);
    let mut status = plugin.status.subscribe();
    let waiting = status
        .wait_for(|status| status.waiting.is_some())
        .await
        .expect("it runs");
    let reason = waiting.waiting.clone().unwrap_or_default();
    drop(waiting);
    let says = "this node has no GPU to offer: not offered: no device node that a csv file names in the device root `";
    assert!(reason.starts_with(says), "{reason}");
    fs::write(&csv, "dev, /dev/nvmap\n").unwrap();
    plugin.reload.notify_one();
    kubelet.wait_for_allocatable(GPU_RESOURCE, 1, SOON).await.unwrap();
    plugin.stop().await;
}

/// One that has a GPU on its bus is NVML's, and may be so only once its driver is loaded.
#[test]
fn nvml_that_fails_is_an_error_on_a_tegra_machine_unless_it_is_asked_for_as_such() {
    let place = Place::with(&NodeSpec::new("h100").gpus(1));
    write(&place.node.root(), "etc/nv_tegra_release", "");
    let mut config = place.config();
    config.config.plugin.device_list_strategy = vec![DeviceListStrategy::EnvVar];
    assert_eq!(Node::discover(&config).unwrap().platform(), Platform::Nvml);
    place.node.set_init_error(Some(999)).unwrap();
    Node::discover(&config).unwrap_err();
    config.config.device_discovery_strategy = DiscoveryStrategy::Tegra;
    let node = Node::discover(&config).unwrap();
    assert_eq!((node.platform(), node.resources()[0].len()), (Platform::Tegra, 1));
    assert!(node.inventory().gpus.is_empty());
    place.node.set_init_error(None).unwrap();
    let node = Node::discover(&config).unwrap();
    assert_eq!((node.platform(), node.inventory().gpus.len()), (Platform::Tegra, 1));
    assert_eq!(node.resources()[0].devices[0].uuid, "tegra");
}
