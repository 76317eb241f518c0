//! Every recorded run of the vendor's plugin, on simulated nodes: the same resources, the same answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use gpu_plugin::{
    GpuResource, Node, NodeConfig, OfferedDevice, Resource, ResourceSet,
    gpu_kubelet::device_plugin::{ContainerAllocateResponse, Device, DeviceSpec},
    gpu_sharing::config::{Config, ConfigFile, Flags, Options, Program, Reading},
};
use gpu_sim::NodeSpec;
use serde::Deserialize;

use super::place::Place;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    cases: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    profile: String,
    gpus: Option<usize>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    imex: bool,
    xid: Option<(usize, u64)>,
    config: Option<String>,
    /// GPUs in MIG mode, and their GPU instances: NVML's constant of the profile, and the start.
    #[serde(default)]
    mig: Vec<Divided>,
    resources: Vec<Recorded>,
    /// The CDI files with their kinds and devices.
    #[serde(default)]
    cdi: BTreeMap<String, (String, Vec<String>)>,
}

#[derive(Debug, Deserialize)]
struct Divided(Vec<usize>, Vec<(u32, u32)>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    name: String,
    socket: String,
    replicas: Option<u32>,
    devices: Vec<RecordedDevice>,
    allocate: Vec<Allocate>,
    preferred: Vec<Preferred>,
    /// What the vendor's plugin marked unhealthy after the Xid.
    #[serde(default)]
    unhealthy: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedDevice {
    numa: Option<u32>,
    gpu: Option<usize>,
    index: Option<String>,
    gi: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Allocate {
    ids: Vec<Vec<String>>,
    #[serde(default)]
    answers: Vec<Answer>,
    error: Option<String>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Answer {
    envs: BTreeMap<String, String>,
    mounts: Vec<String>,
    annotation: Option<(String, String)>,
    cdi: Vec<String>,
    dev_root: Option<String>,
    nodes: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Preferred {
    size: usize,
    #[serde(default)]
    without: Vec<String>,
    #[serde(default)]
    must: Vec<String>,
    count: Option<usize>,
    /// How many replicas of a device, from the most.
    spread: Option<Vec<usize>>,
    error: Option<String>,
}

/// The vendor's configuration of a case.
fn config(case: &Case) -> Config {
    let variable = |name: &str| case.env.get(name).map(Into::into);
    let flags = Flags::from_environment(Program::DevicePlugin, variable).expect("the vendor's plugin took it");
    let text = case.config.as_deref().unwrap_or_default();
    let (file, _) = ConfigFile::parse(text, Reading::Strict).expect("the vendor's plugin took it");
    let (config, _) = Config::resolve(file, flags, Options::default());
    config
        .check(Program::DevicePlugin)
        .expect("the vendor's plugin took it");
    config
}

fn simulated(case: &Case, seed: u64, permute: bool) -> Place {
    let mut spec = NodeSpec::new(&*case.profile).seed(seed).permute_pci(permute);
    if let Some(gpus) = case.gpus {
        spec = spec.gpus(gpus);
    }
    let place = Place::with(&spec);
    for Divided(gpus, instances) in &case.mig {
        for gpu in gpus {
            place.node.set_mig_mode(*gpu, true).expect("the board has MIG");
            // The driver has names for its profiles' constants.
            let inventory = place.inventory();
            let profiles = &inventory.gpus[*gpu].mig.as_ref().expect("the board has MIG").profiles;
            for (constant, start) in instances {
                let profile = profiles.iter().find(|profile| profile.constant == *constant);
                let name = profile.expect("the board has the profile").name.to_string();
                place.node.create_mig(*gpu, &name, Some(*start)).expect("there is room");
            }
        }
    }
    if case.imex {
        let folder = place.node.root().join("dev/nvidia-caps-imex-channels");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("channel0"), "").expect("a node");
    }
    place
}

/// A resource as it is offered, and which of its devices is which of the record's.
struct Matched {
    resource: GpuResource,
    /// In the record's order.
    devices: Vec<OfferedDevice>,
}

impl Matched {
    #[track_caller]
    fn new(name: &str, recorded: &Recorded, set: &ResourceSet, node: &Node) -> Self {
        assert_eq!(set.name.as_str(), recorded.name, "{name}");
        assert_eq!(set.name.socket_name(), recorded.socket, "{name}");
        let mut left: Vec<_> = set.devices.iter().collect();
        let mut devices = Vec::new();
        for wanted in &recorded.devices {
            let same = |device: &&&OfferedDevice| {
                device.numa_node == wanted.numa
                    && wanted.gpu.is_none_or(|gpu| device.index == gpu.to_string())
                    && wanted.index.as_ref().is_none_or(|index| device.index == *index)
                    && wanted
                        .gi
                        .is_none_or(|gi| device.instance.is_some_and(|instance| instance.gpu == gi))
                    && device.replicas == recorded.replicas
            };
            let found = left.iter().find(same).copied();
            let found = found.unwrap_or_else(|| panic!("{name} {}: no {wanted:?} in {left:#?}", recorded.name));
            left.retain(|device| device.uuid != found.uuid);
            devices.push(found.clone());
        }
        assert!(left.is_empty(), "{name} {}: {left:#?}", recorded.name);
        Self {
            resource: GpuResource::new(set.clone(), node.how().clone()),
            devices,
        }
    }

    /// `~3::1` as an id.
    fn id(&self, recorded: &str) -> String {
        let Some(rest) = recorded.strip_prefix('~') else {
            return recorded.to_owned();
        };
        let (device, replica) = rest
            .split_once("::")
            .map_or((rest, None), |(device, n)| (device, Some(n)));
        let uuid = &self.devices[device.parse::<usize>().expect("a number")].uuid;
        replica.map_or_else(|| uuid.clone(), |n| format!("{uuid}::{n}"))
    }

    fn ids(&self, recorded: &[String]) -> Vec<String> {
        recorded.iter().map(|id| self.id(id)).collect()
    }

    /// A text in which devices are named as containers are told them, in the record's words.
    fn recorded(&self, text: &str, by_index: bool) -> String {
        if by_index {
            let place = |word: &str| self.devices.iter().position(|device| device.index == word);
            let words = text
                .split(',')
                .map(|word| place(word).map_or_else(|| word.to_owned(), |n| format!("~{n}")));
            return words.collect::<Vec<_>>().join(",");
        }
        let devices = self.devices.iter().enumerate();
        devices.fold(text.to_owned(), |text, (n, device)| {
            text.replace(&device.uuid, &format!("~{n}"))
        })
    }

    fn answer(&self, response: &ContainerAllocateResponse, by_index: bool) -> Answer {
        let text = |text: &String| self.recorded(text, by_index);
        let mut annotations = response.annotations.iter();
        let annotation = annotations.next().map(|(key, value)| (without_uuid(key), text(value)));
        assert_eq!(annotations.next(), None);
        for mount in &response.mounts {
            assert_eq!((mount.host_path.as_str(), mount.read_only), ("/dev/null", false));
        }
        Answer {
            envs: response
                .envs
                .iter()
                .map(|(name, value)| (name.clone(), text(value)))
                .collect(),
            mounts: response
                .mounts
                .iter()
                .map(|mount| text(&mount.container_path))
                .collect(),
            annotation,
            cdi: response.cdi_devices.iter().map(|device| text(&device.name)).collect(),
            dev_root: response.devices.first().map(|device| {
                assert_eq!(device.permissions, "rw");
                let root = device.host_path.strip_suffix(&device.container_path);
                root.expect("a path beneath the device root").to_owned()
            }),
            nodes: self.nodes(&response.devices),
        }
    }

    /// What each node is, with the minor numbers of this node: those of the record are its own.
    fn nodes(&self, specs: &[DeviceSpec]) -> Vec<String> {
        let mut names = BTreeMap::new();
        for device in &self.devices {
            let index = device.index.split(':').next().unwrap_or_default();
            let node = device.node.clone().expect("a GPU has a node");
            let minor = node
                .strip_prefix("/dev/nvidia")
                .and_then(|minor| minor.parse::<u32>().ok());
            let minor = minor.expect("a number");
            names.insert(node, format!("gpu {index}"));
            if let Some(instance) = device.instance {
                // The driver's numbering (`/proc/driver/nvidia-caps/mig-minors`).
                let cap = |number| format!("/dev/nvidia-caps/nvidia-cap{number}");
                let first = 3 + 135 * minor + 9 * instance.gpu;
                names.insert(cap(first), format!("gi {}", instance.gpu));
                let compute = format!("gi {} ci {}", instance.gpu, instance.compute);
                names.insert(cap(first + 1 + instance.compute), compute);
            }
        }
        let nodes = specs
            .iter()
            .map(|spec| names.get(&spec.container_path).unwrap_or(&spec.container_path));
        nodes.cloned().collect()
    }
}

/// The order of nodes and of indices is random in the vendor's plugin, but for the control nodes.
fn in_one_order(mut answer: Answer, by_index: bool) -> Answer {
    let known = |node: &String| node.starts_with("gpu ") || node.starts_with("gi ");
    let from = answer.nodes.iter().position(known).unwrap_or(answer.nodes.len());
    answer.nodes[from..].sort();
    if by_index && let Some(value) = answer.envs.get_mut("NVIDIA_VISIBLE_DEVICES") {
        let mut words: Vec<_> = value.split(',').map(str::to_owned).collect();
        words.sort();
        *value = words.join(",");
    }
    answer
}

fn without_uuid(key: &str) -> String {
    let (name, id) = key.rsplit_once('_').expect("a plugin and an id");
    let lengths: Vec<_> = id.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{key}");
    assert_eq!(&id[14..15], "4", "a random UUID: {key}");
    format!("{name}_UUID")
}

fn check_allocate(name: &str, case: &Case, matched: &Matched, request: &Allocate) {
    let by_index = case.env.get("DEVICE_ID_STRATEGY").is_some_and(|ids| ids == "index");
    for (container, ids) in request.ids.iter().enumerate() {
        let what = format!("{name} {}: {:?}", matched.resource.name(), request.ids);
        match (matched.resource.allocate(&matched.ids(ids)), &request.error) {
            (Err(text), Some(expected)) => assert_eq!(text, *expected, "{what}"),
            (Ok(response), None) => {
                let answer = in_one_order(matched.answer(&response, by_index), by_index);
                let expected = &request.answers[container];
                let expected = Answer {
                    envs: expected.envs.clone(),
                    mounts: expected.mounts.clone(),
                    annotation: expected.annotation.clone(),
                    cdi: expected.cdi.clone(),
                    dev_root: expected.dev_root.clone(),
                    nodes: expected.nodes.clone(),
                };
                assert_eq!(answer, in_one_order(expected, by_index), "{what}");
            }
            (answer, expected) => panic!("{what}: {answer:?}, and recorded is {expected:?}"),
        }
    }
}

/// Which of equal devices are preferred is random in the vendor's plugin: how many, what they must be, and how they lie on
/// GPUs is not.
fn check_preferred(name: &str, matched: &Matched, request: &Preferred) {
    let what = format!("{name} {}: {request:?}", matched.resource.name());
    let without = matched.ids(&request.without);
    let all: Vec<_> = matched
        .resource
        .devices()
        .borrow()
        .iter()
        .map(|device| device.id.clone())
        .collect();
    let available: Vec<_> = all.into_iter().filter(|id| !without.contains(id)).collect();
    let must = matched.ids(&request.must);
    let preferred = matched.resource.preferred(&available, &must, request.size);
    if request.error.is_some() {
        // The vendor's plugin refuses a pod that asks for too many; the kubelet does so by itself.
        assert_eq!(preferred, [""; 0], "{what}");
        return;
    }
    assert_eq!(Some(preferred.len()), request.count, "{what}: {preferred:?}");
    assert_eq!(
        preferred.iter().collect::<BTreeSet<_>>().len(),
        preferred.len(),
        "{what}: {preferred:?}"
    );
    assert!(
        preferred.iter().all(|id| available.contains(id)),
        "{what}: {preferred:?}"
    );
    assert!(must.iter().all(|id| preferred.contains(id)), "{what}: {preferred:?}");
    if let Some(expected) = &request.spread {
        let mut counts = BTreeMap::<&str, usize>::new();
        for id in &preferred {
            *counts.entry(id.split("::").next().unwrap_or_default()).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(counts, *expected, "{what}: {preferred:?}");
    }
}

fn check_cdi(case: &Case, place: &Place, devices: &[Matched]) {
    let mut written = BTreeMap::new();
    for entry in fs::read_dir(place.cdi_dir()).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a file");
        let spec: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let name = |device: &serde_json::Value| device["name"].as_str().expect("a name").to_owned();
        let names: Vec<_> = spec["devices"].as_array().expect("a list").iter().map(name).collect();
        let names = names.iter().map(|name| {
            devices
                .first()
                .map_or_else(|| name.clone(), |d| d.recorded(name, false))
        });
        let file = path.file_name().expect("a name").to_string_lossy().into_owned();
        let kind = spec["kind"].as_str().expect("a kind").to_owned();
        written.insert(file, (kind, names.collect::<BTreeSet<_>>()));
    }
    let expected = case.cdi.iter().map(|(file, (kind, names))| {
        (
            file.clone(),
            (kind.clone(), names.iter().cloned().collect::<BTreeSet<_>>()),
        )
    });
    assert_eq!(written, expected.collect(), "{}", case.name);
}

/// Simulated nodes by what they are made of: many cases are of one.
#[derive(Default)]
struct Places(BTreeMap<String, Place>);

impl Places {
    fn of(&mut self, case: &Case, seed: u64, permute: bool) -> &Place {
        let made_of = format!("{:?}", (&case.profile, case.gpus, &case.mig, case.imex));
        let place = self.0.entry(made_of).or_insert_with(|| simulated(case, seed, permute));
        let _ = fs::remove_dir_all(place.cdi_dir()); // that of the last case
        place
    }
}

fn check(case: &Case, place: &Place) {
    let name = &case.name;
    let config = NodeConfig {
        config: config(case),
        ..place.config()
    };
    let node = match Node::discover(&config) {
        Ok(node) => node,
        Err(error) => {
            // Recorded: the vendor's plugin ended. The one case is of a node that is not all alike.
            assert!(case.resources.is_empty(), "{name}: {error}");
            assert_eq!(
                error.to_string(),
                "more than one MIG device type present on node",
                "{name}"
            );
            return;
        }
    };
    let names: Vec<_> = node.resources().iter().map(|set| set.name.to_string()).collect();
    let expected: Vec<_> = case.resources.iter().map(|recorded| recorded.name.clone()).collect();
    assert_eq!(names, expected, "{name}: {:?}", node.problems());
    let pairs = case.resources.iter().zip(node.resources());
    let matched: Vec<_> = pairs
        .map(|(recorded, set)| Matched::new(name, recorded, set, &node))
        .collect();
    for (recorded, matched) in case.resources.iter().zip(&matched) {
        for request in &recorded.allocate {
            check_allocate(name, case, matched, request);
        }
        for request in &recorded.preferred {
            check_preferred(name, matched, request);
        }
    }
    check_cdi(case, place, &matched);
}

fn record() -> Record {
    let text = include_str!("../upstream/k8s-device-plugin-0.20.0/cases.yaml");
    let record: Record = serde_saphyr::from_str(text).expect("the record is readable");
    assert_eq!(record.cases.len(), 43, "cases of the record");
    record
}

#[test]
fn recorded_runs_give_the_same_resources_and_answers() {
    let mut places = Places::default();
    for case in &record().cases {
        check(case, places.of(case, 0, false));
    }
}

#[test]
fn so_they_do_on_nodes_with_other_uuids_and_minor_numbers_out_of_order() {
    let mut places = Places::default();
    for (seed, case) in (1..).zip(&record().cases) {
        check(case, places.of(case, seed, true));
    }
}

/// The vendor's plugin marks one device of the GPU that has an Xid, here it is all of them.
#[tokio::test(flavor = "multi_thread")]
async fn recorded_xids_mark_the_same_gpu() {
    for case in record().cases.iter().filter(|case| case.xid.is_some()) {
        let (gpu, xid) = case.xid.expect("it has one");
        let place = simulated(case, 3, true);
        let config = NodeConfig {
            config: config(case),
            ..place.config()
        };
        let recorded = &case.resources[0];
        let kubelet = place.kubelet().await;
        let plugin = super::node::Plugin::start(config, &kubelet);
        let count = recorded.devices.len() * recorded.replicas.unwrap_or(1) as usize;
        kubelet
            .wait_for_allocatable(&recorded.name, count, super::node::SOON)
            .await
            .expect("in time");
        place.node.inject_xid(gpu, xid).expect("a simulated GPU");
        let inventory = place.inventory();
        let of_the_gpu = |id: &str| {
            let mig = id
                .parse()
                .ok()
                .and_then(|uuid| inventory.mig_device(&uuid).map(|(gpu, _)| gpu.index));
            let uuid = id.split("::").next().unwrap_or_default();
            let whole = inventory
                .gpus
                .iter()
                .find(|gpu| gpu.uuid.as_str() == uuid)
                .map(|gpu| gpu.index);
            mig.or(whole) == u32::try_from(gpu).ok()
        };
        let ours = kubelet
            .devices(&recorded.name)
            .iter()
            .filter(|device| of_the_gpu(&device.id))
            .count();
        if recorded.unhealthy.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(800)).await; // longer than the watch takes
            assert_eq!(kubelet.allocatable(&recorded.name), Some(count), "{}", case.name);
        } else {
            kubelet
                .wait_for_allocatable(&recorded.name, count - ours, super::node::SOON)
                .await
                .expect("in time");
            let healthy = |device: &Device| device.health == "Healthy";
            assert!(
                kubelet
                    .devices(&recorded.name)
                    .iter()
                    .all(|device| healthy(device) != of_the_gpu(&device.id))
            );
        }
        plugin.stop().await;
    }
}
