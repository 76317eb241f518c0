//! GPUs shared by MPS, in front of a kubelet double; what is recorded of the vendor's plugin is k8s-device-plugin v0.20.0,
//! `mps4` and `a100-mps-no-daemon`.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use gpu_plugin::{
    Error, Node, NodeConfig,
    gpu_cdi::HookName,
    gpu_core::ownership::OwnerFile,
    gpu_kubelet::double::Kubelet,
    gpu_sharing::{
        config::{Config, ConfigFile, DeviceListStrategy, Flags, Options, Reading},
        mps::{Agreement, Root, SharedResource, plan},
    },
    names::GPU_RESOURCE,
};
use gpu_sim::NodeSpec;

use super::{
    node::{Plugin, SOON},
    place::Place,
};

const FOUR: &str = "sharing: { mps: { resources: [{ name: nvidia.com/gpu, replicas: 4 }] } }";
const EIGHT: &str = "sharing: { mps: { resources: [{ name: nvidia.com/gpu, replicas: 8 }] } }";

fn resolve(text: &str) -> Config {
    let flags = Flags {
        mps_root: Some("/run/nvidia/mps".to_owned()),
        ..Flags::default()
    };
    let (file, _) = ConfigFile::parse(text, Reading::Strict).expect("a configuration");
    Config::resolve(file, flags, Options { naming: true }).0
}

struct Shared {
    place: Place,
}

impl Shared {
    /// As the recorded node, with other UUIDs and minor numbers out of order.
    fn new(gpus: usize) -> Self {
        Self {
            place: Place::with(&NodeSpec::new("a100").gpus(gpus).seed(4).permute_pci(true)),
        }
    }

    fn mps(&self) -> PathBuf {
        self.place.dir.path().join("mps")
    }

    fn config(&self, text: &str) -> NodeConfig {
        NodeConfig {
            config: resolve(text),
            mps_root: self.mps(),
            ..self.place.config()
        }
    }

    fn planned(&self, text: &str) -> Vec<SharedResource> {
        let plan = plan(&self.place.inventory(), &resolve(text)).expect("it can be shared");
        plan.resources
    }

    /// Does as the daemon of a resource does. It serves as long as the file is held.
    fn serve(&self, resource: &SharedResource) -> fs::File {
        let path = Root::new(self.mps()).started(&resource.resource);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let text = Agreement::Serves(resource.clone()).to_text();
        fs::write(path.with_extension("new"), text).expect("a file");
        let file = fs::File::open(path.with_extension("new")).expect("the file");
        file.lock().expect("a lock");
        fs::rename(path.with_extension("new"), path).expect("a file");
        file
    }
}

async fn wait(kubelet: &Kubelet, resource: &str, allocatable: usize) {
    kubelet
        .wait_for_allocatable(resource, allocatable, SOON)
        .await
        .expect("in time");
}

#[test]
fn a_configuration_that_is_refused_leaves_owners_and_cdi_files_as_they_were() {
    let shared = Shared::new(2);
    let owners = OwnerFile::new(shared.place.dir.path().join("owners.json"));
    let config = |text: &str| {
        let mut config = shared.config(text);
        config.config.plugin.device_list_strategy = vec![DeviceListStrategy::CdiCri];
        config.owners = Some(owners.clone());
        config
    };
    let mut first = config("version: v1");
    first.choice.exclude = vec!["1".parse().expect("an index")];
    Node::discover(&first).expect("a node");
    let state = || {
        let described = fs::read_to_string(shared.place.cdi_file()).expect("a CDI file");
        (
            owners.read().expect("owners").owners,
            described,
            shared.place.cdi_files(),
        )
    };
    let before = state();
    assert_eq!(before.0.len(), 1);

    // Another file, and another GPU to claim.
    let mut refused = config(&FOUR.replace("replicas: 4", "replicas: 1000"));
    refused.disabled_hooks = HookName::parse_list("enable-cuda-compat").expect("a hook");
    let error = Node::discover(&refused).expect_err("so many share no GPU");
    assert!(matches!(error, Error::Mps(_)), "{error:?}");
    assert_eq!(state(), before);

    // What is refused by the folder, only when it is written.
    let mut unwritable = config("version: v1");
    unwritable.cdi_dir = shared.place.cdi_file();
    let error = Node::discover(&unwritable).expect_err("that is no folder");
    assert!(matches!(error, Error::Cdi(_)), "{error:?}");
    assert_eq!(state(), before);
}

/// Recorded as `a100-mps-no-daemon`: the kubelet sees nothing.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_daemon_nothing_is_registered() {
    let shared = Shared::new(2);
    let kubelet = shared.place.kubelet().await;
    let plugin = Plugin::start(shared.config(FOUR), &kubelet);
    tokio::time::sleep(Duration::from_millis(800)).await; // longer than a look at the daemon takes
    assert_eq!(kubelet.registrations(GPU_RESOURCE), 0);
    let why = plugin.status().ready().unwrap_err();
    assert_eq!(why, "no MPS daemon serves nvidia.com/gpu");
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_shared_is_offered_while_its_daemon_serves_it() {
    let shared = Shared::new(2);
    let kubelet = shared.place.kubelet().await;
    let plugin = Plugin::start(shared.config(FOUR), &kubelet);
    let daemon = shared.serve(&shared.planned(FOUR)[0]);
    wait(&kubelet, GPU_RESOURCE, 8).await;
    drop(daemon); // as the kernel does when the daemon is killed
    wait(&kubelet, GPU_RESOURCE, 0).await;
    let daemon = shared.serve(&shared.planned(FOUR)[0]);
    wait(&kubelet, GPU_RESOURCE, 8).await;

    // Both read the new configuration, the plugin first.
    plugin.configure(shared.config(EIGHT));
    wait(&kubelet, GPU_RESOURCE, 0).await;
    let new = shared.serve(&shared.planned(EIGHT)[0]);
    drop(daemon);
    wait(&kubelet, GPU_RESOURCE, 16).await;
    drop(new);
    assert_eq!(kubelet.registrations(GPU_RESOURCE), 1);
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_waits_keeps_no_other() {
    let shared = Shared::new(2);
    let kubelet = shared.place.kubelet().await;
    let text = "sharing: { mps: { resources: [{ name: gpu, rename: small, devices: [1], replicas: 3 }] } }";
    let plugin = Plugin::start(shared.config(text), &kubelet);
    wait(&kubelet, GPU_RESOURCE, 1).await;
    assert_eq!(kubelet.registrations("nvidia.com/small"), 0);
    let _daemon = shared.serve(&shared.planned(text)[0]);
    wait(&kubelet, "nvidia.com/small", 3).await;
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_the_recorded_ones_with_the_limits_besides() {
    let shared = Shared::new(2);
    let mut config = shared.config(FOUR);
    config.config.plugin.device_list_strategy = vec![DeviceListStrategy::EnvVar];
    let node = Node::discover(&config).expect("a node");
    let resource = gpu_plugin::GpuResource::new(node.resources()[0].clone(), node.how().clone());
    let allocate = |ids: &[String]| gpu_plugin::Resource::allocate(&resource, ids);
    let gpu = &node.inventory().gpus[0];
    let answer = allocate(&[format!("{}::0", gpu.uuid)]).expect("an answer");
    let expected = BTreeMap::from([
        ("CUDA_MPS_PIPE_DIRECTORY", "/mps/nvidia.com/gpu/pipe".to_owned()),
        ("NVIDIA_VISIBLE_DEVICES", gpu.uuid.to_string()),
        // Ours; recorded as what the vendor's program tells the daemon.
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "25".to_owned()),
        ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=10240M".to_owned()),
    ]);
    let envs: BTreeMap<_, _> = answer
        .envs
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()))
        .collect();
    assert_eq!(envs, expected);
    let mount = |host: &str, container: &str| (host.to_owned(), container.to_owned(), false);
    let mounts: Vec<_> = answer
        .mounts
        .into_iter()
        .map(|mount| (mount.host_path, mount.container_path, mount.read_only))
        .collect();
    assert_eq!(
        mounts,
        [
            mount("/run/nvidia/mps/nvidia.com/gpu/pipe", "/mps/nvidia.com/gpu/pipe"),
            mount("/run/nvidia/mps/shm", "/dev/shm"),
        ]
    );
    let nothing = allocate(&[]).expect("recorded: an answer");
    assert_eq!(nothing.mounts.len(), 2);
    assert_eq!(nothing.envs["NVIDIA_VISIBLE_DEVICES"], "");
    let two = [format!("{}::0", gpu.uuid), format!("{}::1", gpu.uuid)];
    assert_eq!(
        allocate(&two).unwrap_err(),
        "invalid allocation request for \"nvidia.com/gpu\": invalid request: maximum request size for shared resources is 1; \
         found 2"
    );
}

#[test]
fn mig_devices_are_refused_in_the_vendors_words() {
    let shared = Shared::new(1);
    shared.place.node.set_mig_mode(0, true).expect("the board has MIG");
    let text = format!("flags: {{ migStrategy: none }}\n{FOUR}");
    let error = Node::discover(&shared.config(&text)).unwrap_err();
    let words = "sharing using MPS is not supported for MIG devices";
    assert!(error.to_string().starts_with(words), "{error}");
}
