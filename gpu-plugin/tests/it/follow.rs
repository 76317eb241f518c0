//! A plugin that follows its node: what changes is changed, and nothing else.

use std::{fs, path::Path, time::Duration};

use gpu_plugin::{
    Error, NodeConfig,
    gpu_core::{
        GpuUuid,
        ownership::{Owner, OwnerFile},
    },
    gpu_kubelet::double::Kubelet,
    gpu_sharing::config::{Config, ConfigFile, Flags, MigStrategy, Options, Reading},
    names::GPU_RESOURCE,
};
use gpu_sim::{NodeSpec, Recovery};

use super::{
    node::{Plugin, SOON},
    place::Place,
};

const SMALL: &str = "nvidia.com/mig-1g.10gb";
const LARGE: &str = "nvidia.com/mig-3g.40gb";

fn with_strategy(place: &Place, strategy: MigStrategy) -> NodeConfig {
    let mut config = place.config();
    config.config.mig_strategy = strategy;
    config.health.quiet = Duration::from_millis(300);
    config.health.probe_interval = Duration::from_millis(100);
    config
}

/// The same with this sharing.
fn shared(place: &Place, replicas: u32, rename: bool) -> NodeConfig {
    let text = format!(
        "sharing: {{ timeSlicing: {{ renameByDefault: {rename}, resources: [{{ name: gpu, replicas: {replicas} }}] }} }}"
    );
    let (file, _) = ConfigFile::parse(&text, Reading::Strict).expect("a configuration");
    let mut config = place.config();
    config.config.sharing = Config::resolve(file, Flags::default(), Options::default()).0.sharing;
    config
}

async fn offered(kubelet: &Kubelet, resource: &str, count: usize) {
    kubelet
        .wait_for_allocatable(resource, count, SOON)
        .await
        .unwrap_or_else(|error| panic!("{resource}: {error}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn mig_devices_come_and_go_and_the_other_gpus_are_not_touched() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(with_strategy(&place, MigStrategy::Mixed), &kubelet);
    offered(&kubelet, GPU_RESOURCE, 4).await;
    kubelet.admit("elsewhere", "c", GPU_RESOURCE, 1).await.unwrap();

    place.node.set_mig_mode(1, true).unwrap();
    let large = place.node.create_mig(1, "3g.40gb", None).unwrap();
    place.node.create_mig(1, "1g.10gb", None).unwrap();
    place.node.create_mig(1, "1g.10gb", None).unwrap();
    offered(&kubelet, SMALL, 2).await;
    offered(&kubelet, LARGE, 1).await;
    offered(&kubelet, GPU_RESOURCE, 3).await;
    // What the kubelet can give away is described for the runtime.
    let admission = kubelet.admit("small", "c", SMALL, 1).await.unwrap();
    let described = fs::read_to_string(place.cdi_file()).unwrap();
    let name = admission.response.cdi_devices[0]
        .name
        .split_once('=')
        .unwrap()
        .1
        .to_owned();
    assert!(name.starts_with("MIG-") && described.contains(&name), "{name}");

    place.node.destroy_mig(1, large.id).unwrap();
    offered(&kubelet, LARGE, 0).await;
    assert_eq!(kubelet.capacity(LARGE), Some(0));
    place.node.create_mig(1, "3g.40gb", None).unwrap();
    offered(&kubelet, LARGE, 1).await;
    for resource in [GPU_RESOURCE, SMALL, LARGE] {
        assert_eq!(kubelet.registrations(resource), 1, "{resource}");
    }
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_a_mig_device_takes_that_one_away_and_one_of_the_gpu_all() {
    let place = Place::with(&NodeSpec::new("h100").gpus(1));
    place.node.set_mig_mode(0, true).unwrap();
    let made: Vec<_> = (0..3)
        .map(|_| place.node.create_mig(0, "1g.10gb", None).unwrap())
        .collect();
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(with_strategy(&place, MigStrategy::Single), &kubelet);
    offered(&kubelet, GPU_RESOURCE, 3).await;
    place.node.inject_xid_of_instance(0, 95, (made[1].id, 0)).unwrap();
    offered(&kubelet, GPU_RESOURCE, 2).await;
    let ill = kubelet
        .devices(GPU_RESOURCE)
        .into_iter()
        .find(|device| device.health != "Healthy");
    assert_eq!(ill.map(|device| device.id).as_deref(), Some(&*made[1].devices[0].2));
    offered(&kubelet, GPU_RESOURCE, 3).await;
    place.node.inject_xid(0, 79).unwrap();
    offered(&kubelet, GPU_RESOURCE, 0).await;
    assert_eq!(kubelet.capacity(GPU_RESOURCE), Some(3));
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_recovers_when_it_has_been_sound_and_not_while_it_is_lost() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(with_strategy(&place, MigStrategy::None), &kubelet);
    offered(&kubelet, GPU_RESOURCE, 4).await;
    place.node.inject_xid(0, 95).unwrap();
    offered(&kubelet, GPU_RESOURCE, 3).await;
    offered(&kubelet, GPU_RESOURCE, 4).await;

    place.node.inject_xid(0, 79).unwrap();
    place.node.lose(0).unwrap();
    offered(&kubelet, GPU_RESOURCE, 3).await;
    // Three times as long as it would have to be sound, and others are given meanwhile.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        (kubelet.allocatable(GPU_RESOURCE), kubelet.capacity(GPU_RESOURCE)),
        (Some(3), Some(4))
    );
    kubelet.admit("beside", "c", GPU_RESOURCE, 3).await.unwrap();
    place.node.restore(0).unwrap();
    offered(&kubelet, GPU_RESOURCE, 4).await;
    assert_eq!(kubelet.registrations(GPU_RESOURCE), 1);
    plugin.stop().await;
}

/// As the driver sees it (`NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`), whatever the Xid says.
#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_that_the_driver_wants_reset_is_unhealthy_until_it_was() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(with_strategy(&place, MigStrategy::None), &kubelet);
    offered(&kubelet, GPU_RESOURCE, 4).await;
    place.node.want_recovery(1, Recovery::Reset).unwrap();
    place.node.inject_xid(1, 13).unwrap(); // an application's, by which the GPU is looked at
    offered(&kubelet, GPU_RESOURCE, 3).await;
    let reasons: Vec<_> = plugin
        .status()
        .ailments
        .into_iter()
        .map(|ailment| ailment.reason)
        .collect();
    assert_eq!(reasons, ["the driver wants a reset of the GPU"]);
    // Three times as long as it would have to be sound.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(kubelet.allocatable(GPU_RESOURCE), Some(3));
    place.node.reset(1).unwrap();
    offered(&kubelet, GPU_RESOURCE, 4).await;
    plugin.stop().await;
}

/// No Xid comes with it: the driver reports the error, and a look finds what is left of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_whose_memory_failed_is_unhealthy_until_it_was_reset() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(with_strategy(&place, MigStrategy::None), &kubelet);
    offered(&kubelet, GPU_RESOURCE, 4).await;
    place.node.inject_ecc(3, 5, 0).unwrap(); // corrected ones
    place.node.inject_ecc(2, 0, 1).unwrap();
    offered(&kubelet, GPU_RESOURCE, 3).await;
    // Three times as long as it would have to be sound.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let ailments = plugin.status().ailments.into_iter();
    let ill: Vec<_> = ailments
        .map(|ailment| (ailment.part.gpu.to_string(), ailment.reason))
        .collect();
    let reason = "a broken row of its memory waits for a reset to be replaced";
    assert_eq!(ill, [(place.node.gpus()[2].uuid.clone(), reason.to_owned())]);
    place.node.reset(2).unwrap();
    offered(&kubelet, GPU_RESOURCE, 4).await;
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_with_a_fatal_xid_recovers_once_it_was_reset_and_not_by_time_alone() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(with_strategy(&place, MigStrategy::None), &kubelet);
    offered(&kubelet, GPU_RESOURCE, 4).await;
    for gpu in [0, 1] {
        place.node.inject_xid(gpu, 79).unwrap();
    }
    offered(&kubelet, GPU_RESOURCE, 2).await;
    place.node.want_recovery(0, Recovery::Reset).unwrap();
    // Three times as long as they would have to be sound.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(kubelet.allocatable(GPU_RESOURCE), Some(2));
    place.node.reset(0).unwrap();
    offered(&kubelet, GPU_RESOURCE, 3).await;
    let uuid = &place.node.gpus()[1].uuid;
    let ill: Vec<_> = plugin
        .status()
        .ailments
        .into_iter()
        .map(|ailment| ailment.part.gpu.to_string())
        .collect();
    assert_eq!(ill, [uuid.as_str()]);
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_that_hangs_keeps_the_others_neither_from_the_start_nor_from_being_followed() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    place.node.hang(1, Duration::from_mins(10)).unwrap();
    // A call about it is given up after five seconds, and took thirty once.
    let in_time = Duration::from_secs(25);
    let offered = async |resource: &str, count| {
        let told = kubelet.wait_for_allocatable(resource, count, in_time).await;
        told.unwrap_or_else(|error| panic!("{resource}: {error}"));
    };
    let plugin = Plugin::start(with_strategy(&place, MigStrategy::Mixed), &kubelet);
    offered(GPU_RESOURCE, 3).await;
    place.node.restore(1).unwrap();
    offered(GPU_RESOURCE, 4).await;

    place.node.hang(0, Duration::from_mins(10)).unwrap();
    place.node.set_mig_mode(2, true).unwrap();
    place.node.create_mig(2, "1g.10gb", None).unwrap();
    offered(SMALL, 1).await;
    // It may yet answer, and is given while it may.
    offered(GPU_RESOURCE, 3).await;
    place.node.inject_xid(3, 95).unwrap();
    offered(GPU_RESOURCE, 2).await;
    place.node.restore(0).unwrap();
    offered(GPU_RESOURCE, 3).await;
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_configuration_is_taken_over_and_what_it_does_not_touch_goes_on() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(place.config(), &kubelet);
    offered(&kubelet, GPU_RESOURCE, 4).await;
    plugin.configs.send_replace(shared(&place, 4, false));
    offered(&kubelet, GPU_RESOURCE, 16).await;
    plugin.configs.send_replace(shared(&place, 2, true));
    offered(&kubelet, "nvidia.com/gpu.shared", 8).await;
    offered(&kubelet, GPU_RESOURCE, 0).await;
    plugin.configs.send_replace(place.config());
    offered(&kubelet, GPU_RESOURCE, 4).await;
    offered(&kubelet, "nvidia.com/gpu.shared", 0).await;
    assert_eq!(kubelet.registrations(GPU_RESOURCE), 1);

    let mut status = plugin.status.subscribe();
    let status = status
        .wait_for(|status| status.ready().is_ok())
        .await
        .expect("it runs")
        .clone();
    let counts: Vec<_> = status
        .resources
        .iter()
        .map(|r| (r.name.as_str(), r.devices, r.healthy))
        .collect();
    assert_eq!(counts, [("nvidia.com/gpu", 4, 4), ("nvidia.com/gpu.shared", 0, 0)]);
    plugin.stop().await;
}

/// The sockets of plugins that are open in a folder, connections included.
fn open_sockets(folder: &Path) -> usize {
    let plugins = format!("{}/nvidia-", folder.display());
    let sockets = fs::read_to_string("/proc/net/unix").expect("a table");
    sockets.lines().filter(|line| line.contains(&plugins)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_is_withdrawn_ends_once_no_pod_has_any_of_it() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let named = |name: &str| {
        let mut config = place.config();
        let text =
            format!("sharing: {{ timeSlicing: {{ resources: [{{ name: gpu, rename: {name}, replicas: 2 }}] }} }}");
        let (file, _) = ConfigFile::parse(&text, Reading::Strict).expect("a configuration");
        let naming = Options { naming: true };
        config.config.sharing = Config::resolve(file, Flags::default(), naming).0.sharing;
        config
    };
    let names: Vec<_> = (0..50).map(|n| format!("gpu-{n}")).collect();
    let plugin = Plugin::told(named(&names[0]), &kubelet, true);
    let resource = |name: &str| format!("nvidia.com/{name}");
    offered(&kubelet, &resource(&names[0]), 8).await;
    kubelet.admit("goes-on", "c", &resource(&names[0]), 1).await.unwrap();
    let sockets = || open_sockets(kubelet.device_plugin_dir());
    let of_one = sockets();
    for name in &names[1..] {
        plugin.configure(named(name));
        offered(&kubelet, &resource(name), 8).await;
    }
    let left = async |expected: &[&str]| {
        let mut status = plugin.status.subscribe();
        let left = status.wait_for(|status| {
            let names = status.resources.iter().map(|resource| resource.name.as_str());
            names.eq(expected.iter().copied())
        });
        let left = tokio::time::timeout(5 * SOON, left).await;
        drop(left.expect("in time").expect("it runs"));
        let closed = async {
            while sockets() > expected.len() * of_one {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(SOON, closed).await.expect("they are closed");
    };
    left(&[&resource("gpu-0"), &resource("gpu-49")]).await;
    assert_eq!(kubelet.capacity("nvidia.com/gpu-7"), Some(0));

    // It comes back, and what was kept for a pod was not registered anew.
    plugin.configure(named("gpu-7"));
    offered(&kubelet, "nvidia.com/gpu-7", 8).await;
    assert_eq!(kubelet.registrations("nvidia.com/gpu-7"), 2);
    kubelet.remove_pod("goes-on");
    left(&["nvidia.com/gpu-7"]).await;
    assert_eq!(kubelet.registrations("nvidia.com/gpu-0"), 1);
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_does_not_suit_the_node_is_refused_and_the_old_one_stays() {
    let place = Place::new();
    place.node.set_mig_mode(3, true).unwrap();
    place.node.create_mig(3, "1g.10gb", None).unwrap();
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(with_strategy(&place, MigStrategy::Mixed), &kubelet);
    offered(&kubelet, GPU_RESOURCE, 3).await;
    offered(&kubelet, SMALL, 1).await;
    plugin.configs.send_replace(with_strategy(&place, MigStrategy::Single)); // the others are not in MIG mode
    let mut status = plugin.status.subscribe();
    let refused = status
        .wait_for(|status| status.refused.is_some())
        .await
        .expect("it runs");
    assert_eq!(
        refused.refused.as_deref(),
        Some("all devices on the node must be configured with the same migEnabled value")
    );
    drop(refused);
    assert_eq!(
        (kubelet.allocatable(GPU_RESOURCE), kubelet.allocatable(SMALL)),
        (Some(3), Some(1))
    );
    // What is in force is followed on.
    place.node.create_mig(3, "1g.10gb", None).unwrap();
    offered(&kubelet, SMALL, 2).await;
    plugin.configs.send_replace(with_strategy(&place, MigStrategy::Mixed));
    status
        .wait_for(|status| status.refused.is_none())
        .await
        .expect("it runs");
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_no_longer_suits_its_strategy_keeps_what_is_still_there() {
    let place = Place::with(&NodeSpec::new("h100").gpus(2));
    let make = |gpu, profile| place.node.create_mig(gpu, profile, None).unwrap();
    for gpu in [0, 1] {
        place.node.set_mig_mode(gpu, true).unwrap();
        make(gpu, "3g.40gb");
    }
    let second = make(1, "3g.40gb");
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(with_strategy(&place, MigStrategy::Single), &kubelet);
    offered(&kubelet, GPU_RESOURCE, 3).await;
    place.node.destroy_mig(1, second.id).unwrap();
    make(1, "1g.10gb");
    offered(&kubelet, GPU_RESOURCE, 2).await;
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_was_refused_is_taken_over_once_the_node_suits_it() {
    let place = Place::with(&NodeSpec::new("h100").gpus(2));
    place.node.set_mig_mode(1, true).unwrap();
    place.node.create_mig(1, "1g.10gb", None).unwrap();
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(with_strategy(&place, MigStrategy::Mixed), &kubelet);
    offered(&kubelet, SMALL, 1).await;
    plugin.configs.send_replace(with_strategy(&place, MigStrategy::Single));
    let mut status = plugin.status.subscribe();
    let refused = status.wait_for(|status| status.refused.is_some()).await;
    drop(refused.expect("it runs"));
    place.node.set_mig_mode(0, true).unwrap();
    place.node.create_mig(0, "1g.10gb", None).unwrap();
    offered(&kubelet, GPU_RESOURCE, 2).await;
    let taken = status.wait_for(|status| status.refused.is_none()).await;
    drop(taken.expect("it runs"));
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_offered_is_told_and_tried_again() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(with_strategy(&place, MigStrategy::Mixed), &kubelet);
    offered(&kubelet, GPU_RESOURCE, 4).await;
    let folder = place.cdi_file().parent().expect("a folder").to_owned();
    let aside = folder.with_extension("aside");
    fs::rename(&folder, &aside).unwrap();
    fs::write(&folder, "").unwrap();
    place.node.set_mig_mode(1, true).unwrap();
    place.node.create_mig(1, "1g.10gb", None).unwrap();
    let mut status = plugin.status.subscribe();
    let said = status.wait_for(|status| !status.problems.is_empty()).await;
    drop(said.expect("it runs"));
    fs::remove_file(&folder).unwrap();
    fs::rename(&aside, &folder).unwrap();
    // It is tried again every ten seconds.
    let again = kubelet.wait_for_allocatable(SMALL, 1, 3 * SOON).await;
    again.expect("it is offered");
    offered(&kubelet, GPU_RESOURCE, 3).await;
    let well = status.wait_for(|status| status.problems.is_empty()).await;
    drop(well.expect("it runs"));
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_fails_forgets_nothing() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(with_strategy(&place, MigStrategy::None), &kubelet);
    offered(&kubelet, GPU_RESOURCE, 4).await;
    place.node.lose(0).unwrap();
    offered(&kubelet, GPU_RESOURCE, 3).await;
    let folder = place.cdi_file().parent().expect("a folder").to_owned();
    fs::rename(&folder, folder.with_extension("aside")).unwrap();
    fs::write(&folder, "").unwrap();
    plugin.reload.notify_one();
    let mut status = plugin.status.subscribe();
    let said = status.wait_for(|status| !status.problems.is_empty()).await;
    drop(said.expect("it runs"));
    // The health of all is told anew; that of the lost one is not another.
    place.node.inject_xid(1, 79).unwrap();
    offered(&kubelet, GPU_RESOURCE, 2).await;
    assert_eq!(kubelet.capacity(GPU_RESOURCE), Some(4));
    plugin.stop().await;
}

/// An owner file in which the MIG manager has the third GPU, the UUIDs of all, and a configuration that keeps to the file.
fn one_of_the_mig_manager(place: &Place) -> (OwnerFile, Vec<GpuUuid>, NodeConfig) {
    let file = OwnerFile::new(place.dir.path().join("owners.json"));
    let uuids: Vec<_> = place.inventory().gpus.into_iter().map(|gpu| gpu.uuid).collect();
    file.claim(Owner::MigManager, &uuids[2..3]).expect("it is free");
    let mut config = place.config();
    config.owners = Some(file.clone());
    (file, uuids, config)
}

#[tokio::test(flavor = "multi_thread")]
async fn gpus_are_claimed_and_those_of_another_are_left_to_it() {
    let place = Place::new();
    let (file, _, mut config) = one_of_the_mig_manager(&place);
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(config.clone(), &kubelet);
    offered(&kubelet, GPU_RESOURCE, 3).await;
    let owned = |owner| {
        file.read()
            .unwrap()
            .owners
            .values()
            .filter(|claim| claim.owner == owner)
            .count()
    };
    assert_eq!((owned(Owner::DevicePlugin), owned(Owner::MigManager)), (3, 1));
    let said = |word: &str| {
        plugin
            .status
            .borrow()
            .problems
            .iter()
            .any(|problem| problem.contains(word))
    };
    assert!(
        said("is not offered: it is owned by mig-manager"),
        "{:?}",
        plugin.status.borrow()
    );

    // What is not offered any more is given up.
    config.choice.exclude = vec!["0".parse().unwrap()];
    plugin.configs.send_replace(config);
    offered(&kubelet, GPU_RESOURCE, 2).await;
    assert_eq!(owned(Owner::DevicePlugin), 2);
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gpus_that_another_owner_gives_up_or_takes_are_noticed_while_nothing_else_happens() {
    let place = Place::new();
    let (file, uuids, config) = one_of_the_mig_manager(&place);
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(config, &kubelet);
    offered(&kubelet, GPU_RESOURCE, 3).await;

    file.release(Owner::MigManager, &uuids[2..3]).unwrap();
    offered(&kubelet, GPU_RESOURCE, 4).await;
    let owner = |gpu| file.read().unwrap().owners.get(gpu).map(|claim| claim.owner);
    assert_eq!(owner(&uuids[2]), Some(Owner::DevicePlugin));
    assert_eq!(plugin.status().problems, [""; 0]);

    // At one go, since what is given up is claimed again.
    let mut taken = file.read().unwrap();
    taken.owners.get_mut(&uuids[0]).unwrap().owner = Owner::Dra;
    fs::write(file.path(), serde_json::to_string(&taken).unwrap()).unwrap();
    offered(&kubelet, GPU_RESOURCE, 3).await;

    // Nobody has claimed anything; what is offered is claimed again.
    fs::remove_file(file.path()).unwrap();
    offered(&kubelet, GPU_RESOURCE, 4).await;
    assert_eq!(owner(&uuids[0]), Some(Owner::DevicePlugin));
    assert_eq!(kubelet.registrations(GPU_RESOURCE), 1);
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_that_is_taken_out_goes_and_comes_back_when_it_is_put_in() {
    let place = Place::new();
    let file = OwnerFile::new(place.dir.path().join("owners.json"));
    let mut config = with_strategy(&place, MigStrategy::None);
    config.owners = Some(file.clone());
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(config, &kubelet);
    offered(&kubelet, GPU_RESOURCE, 4).await;
    let uuids: Vec<_> = place.inventory().gpus.into_iter().map(|gpu| gpu.uuid).collect();
    let owned = || -> Vec<GpuUuid> { file.read().unwrap().owners.into_keys().collect() };
    // The kubelet hears it before the file is written.
    let until_owned = async |expected: &[GpuUuid]| {
        let mut expected = expected.to_vec();
        expected.sort();
        let so = async {
            while owned() != expected {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let soon = tokio::time::timeout(SOON, so).await;
        soon.unwrap_or_else(|_| panic!("{:?} are claimed", owned()));
    };
    let described = || fs::read_to_string(place.cdi_file()).unwrap();
    until_owned(&uuids).await;

    // The numbers of those behind it change, and theirs alone.
    place.node.unplug(1).unwrap();
    offered(&kubelet, GPU_RESOURCE, 3).await;
    assert_eq!(
        kubelet.capacity(GPU_RESOURCE),
        Some(3),
        "it is not unhealthy, it is gone"
    );
    until_owned(&[uuids[0].clone(), uuids[2].clone(), uuids[3].clone()]).await;
    assert!(!described().contains(uuids[1].as_str()) && described().contains(uuids[2].as_str()));
    kubelet.admit("beside", "c", GPU_RESOURCE, 3).await.unwrap();

    place.node.plug(1).unwrap();
    offered(&kubelet, GPU_RESOURCE, 4).await;
    until_owned(&uuids).await;
    assert!(described().contains(uuids[1].as_str()));
    // It is watched as the others are.
    place.node.inject_xid(1, 95).unwrap();
    offered(&kubelet, GPU_RESOURCE, 3).await;
    assert_eq!(kubelet.capacity(GPU_RESOURCE), Some(4));
    offered(&kubelet, GPU_RESOURCE, 4).await;

    // One that is lost stays in the list until it is taken out.
    place.node.inject_xid(3, 79).unwrap();
    place.node.lose(3).unwrap();
    offered(&kubelet, GPU_RESOURCE, 3).await;
    assert_eq!(kubelet.capacity(GPU_RESOURCE), Some(4));
    place.node.unplug(3).unwrap();
    let gone = |kubelet: &Kubelet| kubelet.capacity(GPU_RESOURCE) == Some(3);
    kubelet.wait_until("it is gone", SOON, gone).await.unwrap();
    until_owned(&uuids[..3]).await;
    assert_eq!(plugin.status().ailments, []);
    // Another or the same: it has been away.
    place.node.plug(3).unwrap();
    offered(&kubelet, GPU_RESOURCE, 4).await;
    until_owned(&uuids).await;
    assert_eq!(kubelet.registrations(GPU_RESOURCE), 1);
    assert_eq!(plugin.status().problems, [""; 0]);
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn device_nodes_that_go_and_come_and_a_cdi_file_that_somebody_removed_are_noticed() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(place.config(), &kubelet);
    offered(&kubelet, GPU_RESOURCE, 4).await;
    let described = fs::read_to_string(place.cdi_file()).unwrap();
    let (node, away) = (place.node.root().join("dev/nvidia2"), place.node.root().join("away"));
    fs::rename(&node, &away).unwrap();
    offered(&kubelet, GPU_RESOURCE, 3).await;
    fs::rename(&away, &node).unwrap();
    offered(&kubelet, GPU_RESOURCE, 4).await;

    fs::remove_dir_all(place.cdi_dir()).unwrap();
    let written = async {
        while fs::read_to_string(place.cdi_file()).ok().as_ref() != Some(&described) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, written).await.expect("it is written again");
    assert_eq!(kubelet.registrations(GPU_RESOURCE), 1);
    assert_eq!(plugin.status().problems, [""; 0]);
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_is_replaced_takes_a_new_process() {
    let place = Place::new();
    let kubelet = place.kubelet().await;
    let plugin = Plugin::start(place.config(), &kubelet);
    offered(&kubelet, GPU_RESOURCE, 4).await;
    let mut node = gpu_sim::Node::open(place.node.folder()).unwrap();
    node.load_driver("580").unwrap();
    let ended = tokio::time::timeout(SOON, plugin.task)
        .await
        .expect("in time")
        .expect("no panic");
    assert!(matches!(ended, Err(Error::DriverReplaced(_))), "{ended:?}");
}
