use gpu_core::{Engines, Fabric, FabricState, Inventory, Memory, Mig, MigAttributes, MigDevice, Problem, VgpuHost};
use gpu_sharing::config::{ConfigFile, Flags, Reading};
use proptest::prelude::*;

use super::*;
use crate::PciFunction;

/// A node's inventory: a GPU for each name, the first at 0000:10:00.0.
fn inventory(names: &[&str]) -> Inventory {
    let gpu = |(index, name): (usize, &&str)| {
        format!(
            r#"{{ "index": {index}, "minor": {index}, "uuid": "GPU-00000000-0000-0000-0000-{index:012}", "name": {name:?},
                "pci": {{ "address": "0000:{:02x}:00.0", "id": "10de:2335" }}, "compute_capability": "9.0" }}"#,
            0x10 + index
        )
    };
    let gpus: Vec<_> = names.iter().enumerate().map(gpu).collect();
    let driver = r#"{ "version": "580.159.04", "cuda_version": "13.0" }"#;
    serde_json::from_str(&format!(r#"{{ "driver": {driver}, "gpus": [{}] }}"#, gpus.join(","))).unwrap()
}

fn enable_mig(gpu: &mut Gpu, profiles: &[Option<&str>]) {
    let device = |(index, profile): (usize, Option<&str>)| MigDevice {
        index: u32::try_from(index).unwrap(),
        uuid: format!("MIG-00000000-0000-0000-{:04}-{index:012}", gpu.index)
            .parse()
            .unwrap(),
        gpu_instance: 1,
        compute_instance: 0,
        profile: profile.map(|profile| profile.parse().unwrap()),
        name: None,
        attributes: Some(MigAttributes {
            memory_mib: 4864,
            multiprocessors: 14,
            gpu_slices: 1,
            compute_slices: 1,
            engines: Engines::default(),
        }),
    };
    gpu.mig = Some(Mig {
        enabled: true,
        pending_enabled: true,
        devices: profiles.iter().copied().enumerate().map(device).collect(),
        ..Mig::default()
    });
}

fn config(text: &str) -> Config {
    let (file, _) = ConfigFile::parse(text, Reading::Strict).unwrap();
    Config::resolve(file, Flags::default(), gpu_sharing::config::Options::default()).0
}

/// The labels that are asked for, as `key=value` without the domain; `!key` for one that is absent.
#[track_caller]
fn check(inventory: &Inventory, node: &Node, text: &str, expected: &[&str]) -> Vec<Remark> {
    let (labels, remarks) = labels(inventory, node, &config(text), Options::default()).unwrap();
    for expected in expected {
        if let Some(key) = expected.strip_prefix('!') {
            assert_eq!(labels.get(&format!("nvidia.com/{key}")), None);
        } else {
            let (key, value) = expected.split_once('=').unwrap();
            let found = labels.get(&format!("nvidia.com/{key}")).map(LabelValue::as_str);
            assert_eq!(found, Some(value), "{key} of\n{labels}");
        }
    }
    remarks
}

fn function(address: &str, class: u32, vgpu: Vgpu) -> PciFunction {
    PciFunction {
        address: address.parse().unwrap(),
        id: "10de:2335".parse().unwrap(),
        class,
        vgpu,
    }
}

fn node(functions: impl IntoIterator<Item = PciFunction>) -> Node {
    Node {
        pci: Some(functions.into_iter().collect()),
        ..Node::default()
    }
}

#[test]
fn no_gpus_no_labels_but_the_time_and_the_vgpus() {
    let node = Node {
        timestamp: Some(1_700_000_000),
        ..node([])
    };
    let (labels, _) = labels(&Inventory::default(), &node, &config(""), Options::default()).unwrap();
    assert_eq!(
        labels.to_string(),
        "nvidia.com/gfd.timestamp=1700000000\nnvidia.com/vgpu.present=false\n"
    );
    let display = inventory(&["DGX Display", "NVIDIA DGX Display"]);
    check(&display, &Node::default(), "", &["!gpu.product", "!vgpu.present"]);
}

#[test]
fn of_several_models_the_labels_speak_of_the_most_numerous() {
    let mixed = inventory(&["B", "A", "A", "C", "C"]);
    let remarks = check(
        &mixed,
        &Node::default(),
        "",
        &["gpu.product=A", "gpu.count=2", "!gpu-1.product"],
    );
    assert_eq!(remarks.len(), 1);
    // Whatever is whole comes first: that is what pods get as nvidia.com/gpu.
    let mut mixed = mixed;
    enable_mig(&mut mixed.gpus[1], &[Some("1g.5gb")]);
    enable_mig(&mut mixed.gpus[2], &[Some("1g.5gb")]);
    check(
        &mixed,
        &Node::default(),
        "",
        &["gpu.product=C", "gpu.count=2", "gpu.replicas=1"],
    );

    let per_model = Options { per_model: true };
    let (labels, _) = labels(&mixed, &Node::default(), &config(""), per_model).unwrap();
    let products =
        ["gpu-1", "gpu-2", "gpu-3"].map(|key| labels.get(&format!("nvidia.com/{key}.product")).unwrap().as_str());
    assert_eq!(products, ["C", "B", "A"]);
    assert_eq!(labels.get("nvidia.com/gpu-3.replicas").unwrap().as_str(), "0");
}

#[test]
fn a_gpu_that_cannot_be_read_costs_no_label() {
    let mut half_dead = inventory(&["A", "A"]);
    half_dead.problems = serde_json::from_str(
        r#"[{ "index": 2, "kind": "lost", "call": "nvmlDeviceGetHandleByIndex_v2", "message": "GPU is lost" },
            { "index": 1, "kind": "incomplete", "call": "nvmlDeviceGetSerial", "message": "timeout" }]"#,
    )
    .unwrap();
    let remarks = check(&half_dead, &Node::default(), "", &["gpu.count=2", "gpu.degraded=true"]);
    assert_eq!(remarks, [Remark::Degraded { gpus: 1 }]);
    half_dead.problems.remove(0);
    check(&half_dead, &Node::default(), "", &["!gpu.degraded"]);
}

#[test]
fn what_is_not_known_is_not_labelled() {
    let mut gpu = inventory(&["A"]);
    gpu.gpus[0].compute_capability = None;
    gpu.driver = None;
    let absent = [
        "!gpu.memory",
        "!gpu.family",
        "!gpu.compute.major",
        "!cuda.driver.major",
        "gpu.machine=unknown",
        "gpu.mode=unknown",
    ];
    check(&gpu, &Node::default(), "", &absent);
    gpu.gpus[0].memory = Some(Memory {
        total_bytes: 0,
        reserved_bytes: None,
    });
    check(&gpu, &Node::default(), "", &["!gpu.memory"]);
}

#[test]
fn a_version_of_two_numbers_has_no_revision() {
    let mut gpu = inventory(&["A"]);
    gpu.driver.as_mut().unwrap().version = "470.82".parse().unwrap();
    let expected = [
        "cuda.driver-version.minor=82",
        "cuda.driver.rev=",
        "cuda.driver-version.revision=",
    ];
    check(&gpu, &Node::default(), "", &expected);
}

#[test]
fn the_machine_is_a_value_whatever_the_firmware_says() {
    let check_machine = |machine: Option<&str>, expected: &str| {
        let node = Node {
            machine: machine.map(str::to_owned),
            ..Node::default()
        };
        check(&inventory(&["A"]), &node, "", &[&format!("gpu.machine={expected}")]);
    };
    check_machine(Some("PowerEdge R760xa"), "PowerEdge-R760xa");
    check_machine(Some("To Be Filled By O.E.M."), "To-Be-Filled-By-O.E.M");
    check_machine(Some("---"), "unknown");
    check_machine(Some(""), "unknown");
    check_machine(None, "unknown");
}

#[test]
fn the_mode_is_that_of_all_gpus() {
    let check_mode = |classes: &[u32], expected: &str| {
        let functions = (0x10..).zip(classes);
        let node = node(functions.map(|(bus, class)| function(&format!("0000:{bus:02x}:00.0"), *class, Vgpu::No)));
        check(&inventory(&["A", "A"]), &node, "", &[&format!("gpu.mode={expected}")]);
    };
    check_mode(&[0x03_02_00, 0x03_02_00], "compute");
    check_mode(&[0x03_00_00, 0x03_00_00], "graphics");
    check_mode(&[0x03_00_00, 0x03_02_00], "unknown");
    check_mode(&[0x03_02_00], "unknown");
}

#[test]
fn the_clique_is_that_of_all_gpus_in_a_fabric() {
    let fabric = |cluster: &str, clique| {
        Some(Fabric {
            state: FabricState::Completed,
            error: None,
            cluster_uuid: Some(cluster.to_owned()),
            clique: Some(clique),
            health_mask: None,
        })
    };
    let mut gpus = inventory(&["A", "A", "A"]);
    gpus.gpus[0].fabric = fabric("c", 0);
    gpus.gpus[1].fabric = fabric("c", 0);
    check(&gpus, &Node::default(), "", &["gpu.clique=c.0"]);
    gpus.gpus[2].fabric = fabric("c", 1);
    let remarks = check(&gpus, &Node::default(), "", &["!gpu.clique"]);
    assert_eq!(
        remarks[0].to_string(),
        "the GPUs are of several NVLink cliques: c.0, c.1"
    );
    for gpu in &mut gpus.gpus {
        gpu.fabric = fabric("c", 0);
        gpu.fabric.as_mut().unwrap().state = FabricState::InProgress;
    }
    check(&gpus, &Node::default(), "", &["!gpu.clique"]);
}

#[test]
fn virtual_gpus_name_the_hosts_driver() {
    let host = VgpuHost {
        driver_version: Some("460.16".into()),
        driver_branch: Some("r460_00".into()),
    };
    let gpus = [
        function("0000:10:00.0", 0x03_02_00, Vgpu::No),
        function("0000:11:00.0", 0x03_02_00, Vgpu::Yes(host)),
    ];
    let present = [
        "vgpu.present=true",
        "vgpu.host-driver-version=460.16",
        "vgpu.host-driver-branch=r460_00",
    ];
    check(&inventory(&["A"]), &node(gpus), "", &present);
    let unknown = Vgpu::Unknown {
        reason: "64 bytes".into(),
    };
    let remarks = check(
        &inventory(&["A"]),
        &node([function("0000:10:00.0", 0x03_02_00, unknown)]),
        "",
        &["!vgpu.present"],
    );
    assert_eq!(
        remarks[0].to_string(),
        "whether `0000:10:00.0` is a virtual GPU cannot be seen: 64 bytes"
    );
}

#[test]
fn pci_labels_are_those_that_operators_look_for() {
    let gpu = |address, class| function(address, class, Vgpu::No);
    let functions = [
        gpu("0000:10:00.0", 0x03_02_00),
        gpu("0000:11:00.0", 0x03_00_00),
        gpu("0000:12:00.0", 0x06_80_00),
    ];
    let domain = "feature.node.kubernetes.io";
    let expected = format!(
        "{domain}/pci-0300_10de.present=true\n{domain}/pci-0302_10de.present=true\n{domain}/pci-10de.present=true\n"
    );
    assert_eq!(pci_labels(&node(functions)).to_string(), expected);
    assert!(pci_labels(&node([gpu("0000:12:00.0", 0x06_80_00)])).is_empty());
}

#[test]
fn mps_is_not_for_mig_devices() {
    let mps = config("sharing: { mps: { resources: [{ name: gpu, replicas: 2 }] } }");
    let mut gpus = inventory(&["A", "A"]);
    let (labels_of_whole, _) = labels(&gpus, &Node::default(), &mps, Options::default()).unwrap();
    assert_eq!(labels_of_whole.get(MPS_CAPABLE).unwrap().as_str(), "true");
    enable_mig(&mut gpus.gpus[1], &[]);
    let error = labels(&gpus, &Node::default(), &mps, Options::default()).unwrap_err();
    assert_eq!(error, Error::MpsOnMig { index: 1 });
}

#[test]
fn replicas_of_a_profile_are_shared_under_its_name() {
    let mut gpus = inventory(&["A"]);
    enable_mig(&mut gpus.gpus[0], &[Some("1g.5gb+me"), Some("2g.10gb")]);
    let text = "
flags: { migStrategy: mixed }
sharing: { timeSlicing: { resources: [{ name: mig-1g.5gb.me, replicas: 3 }, { name: gpu, replicas: 9 }] } }";
    let expected = [
        "mig-1g.5gb.me.product=A-MIG-1g.5gb.me-SHARED",
        "mig-1g.5gb.me.replicas=3",
        "mig-1g.5gb.me.sharing-strategy=time-slicing",
        "mig-2g.10gb.replicas=1",
        "mig-2g.10gb.sharing-strategy=none",
        "gpu.replicas=0",
        "gpu.sharing-strategy=none",
    ];
    check(&gpus, &Node::default(), text, &expected);
}

#[test]
fn single_takes_nothing_but_one_profile_on_every_gpu() {
    let invalid = [
        "gpu.product=A-MIG-INVALID",
        "gpu.count=0",
        "gpu.replicas=0",
        "gpu.memory=0",
        "gpu.sharing-strategy=",
        "gpu.family=hopper",
        "!gpu.slices.gi",
    ];
    let single = |devices: [Option<&[Option<&str>]>; 2], expected: &[&str]| {
        let mut gpus = inventory(&["A", "A"]);
        for (gpu, devices) in gpus.gpus.iter_mut().zip(devices) {
            if let Some(devices) = devices {
                enable_mig(gpu, devices);
            }
        }
        check(&gpus, &Node::default(), "flags: { migStrategy: single }", expected)
    };
    let one: &[_] = &[Some("1g.5gb"), Some("1g.5gb")];
    let valid = [
        "gpu.product=A-MIG-1g.5gb",
        "gpu.count=4",
        "gpu.slices.gi=1",
        "gpu.memory=4864",
    ];
    assert_eq!(single([Some(one), Some(one)], &valid), []);
    assert_eq!(
        single([None, None], &["gpu.product=A", "gpu.count=2", "mig.strategy=single"]),
        []
    );
    for devices in [
        [Some(one), None],
        [Some(one), Some(&[])],
        [Some(one), Some(&[Some("2g.10gb")])],
        [Some(one), Some(&[None])],
        [Some(&[None]), Some(&[None])],
    ] {
        let remarks = single(devices, &invalid);
        assert!(
            remarks
                .iter()
                .any(|remark| matches!(remark, Remark::InvalidSingle { .. }))
        );
    }
}

#[test]
fn a_profile_whose_name_makes_no_key_is_named() {
    let mut gpus = inventory(&["A"]);
    let profile = format!("1g.5gb+{}", "x".repeat(60));
    enable_mig(&mut gpus.gpus[0], &[Some(&profile)]);
    let remarks = check(
        &gpus,
        &Node::default(),
        "flags: { migStrategy: mixed }",
        &["gpu.product=A"],
    );
    assert!(
        matches!(&remarks[..], [Remark::Profile { profile: p, .. }] if *p == profile),
        "{remarks:?}"
    );
}

/// A GPU of which everything that labels speak of can be anything.
fn any_gpu() -> impl Strategy<Value = Gpu> {
    let profile = prop_oneof![
        Just(None),
        "[1-9]g\\.[1-9][0-9]{0,12}gb(\\+[a-z.]{1,50})?".prop_map(Some),
        "[1-9]c\\.[1-9]g\\.[1-9]gb".prop_map(Some),
    ];
    let devices = prop::option::of(prop::collection::vec(profile, 0..4));
    let fabric = prop::option::of((".{0,70}", any::<u32>()));
    (
        ".{0,80}",
        devices,
        fabric,
        prop::option::of(any::<u64>()),
        any::<(u32, u32)>(),
        0..99_u32,
    )
        .prop_map(|(name, devices, fabric, memory, (major, minor), index)| {
            let mut gpu = inventory(&["A"]).gpus.remove(0);
            gpu.name = name;
            gpu.index = index;
            gpu.memory = memory.map(|total_bytes| Memory {
                total_bytes,
                reserved_bytes: None,
            });
            gpu.compute_capability = Some(gpu_core::ComputeCapability { major, minor });
            gpu.fabric = fabric.map(|(cluster, clique)| Fabric {
                state: FabricState::Completed,
                error: None,
                cluster_uuid: Some(cluster),
                clique: Some(clique),
                health_mask: None,
            });
            if let Some(devices) = devices {
                let profiles: Vec<_> = devices
                    .iter()
                    .map(|profile| {
                        profile
                            .as_deref()
                            .filter(|name| name.parse::<gpu_core::MigProfile>().is_ok())
                    })
                    .collect();
                enable_mig(&mut gpu, &profiles);
            }
            gpu
        })
}

/// GPUs of two models, on the bus one after the other.
fn any_gpus() -> impl Strategy<Value = Vec<Gpu>> {
    let model = prop::sample::select(vec!["A", "B"]);
    prop::collection::vec((any_gpu(), model), 0..6).prop_map(|gpus| {
        let place = |(bus, (mut gpu, model)): (u32, (Gpu, &str))| {
            gpu.pci.address = format!("0000:{bus:02x}:00.0").parse().unwrap();
            model.clone_into(&mut gpu.name);
            gpu
        };
        (0x10..).zip(gpus).map(place).collect()
    })
}

proptest! {
    #[test]
    fn the_order_of_an_inventory_is_of_no_consequence(
        (gpus, shuffled) in any_gpus().prop_flat_map(|gpus| (Just(gpus.clone()), Just(gpus).prop_shuffle())),
        strategy in prop::sample::select(vec!["none", "single", "mixed"]),
        per_model: bool,
    ) {
        let config = config(&format!("flags: {{ migStrategy: {strategy} }}"));
        let of = |gpus: Vec<Gpu>| {
            let inventory = Inventory { gpus, ..inventory(&[]) };
            labels(&inventory, &Node::default(), &config, Options { per_model }).unwrap()
        };
        prop_assert_eq!(of(gpus), of(shuffled));
    }

    /// The types hold it; this looks at the texts, as a server would.
    #[test]
    fn any_inventory_has_only_valid_labels(
        gpus in prop::collection::vec(any_gpu(), 0..4),
        machine in prop::option::of(".{0,80}"),
        version in prop::option::of("[0-9]{1,9}\\.0{0,80}[0-9]{1,9}"),
        host in prop::option::of((".{0,80}", ".{0,80}")),
        strategy in prop::sample::select(vec!["none", "single", "mixed"]),
        sharing in prop::sample::select(vec!["none", "timeSlicing", "mps"]),
        lost in prop::option::of(0..99_u32),
        described: bool,
        class: u32,
        per_model: bool,
    ) {
        let mut inventory = inventory(&[]);
        let mut driver = inventory.driver.take().unwrap();
        inventory.driver = version.map(|version| {
            driver.version = version.parse().unwrap();
            driver
        });
        inventory.gpus = gpus;
        inventory.problems = lost.map(|index| Problem {
            index,
            uuid: None,
            pci: None,
            kind: ProblemKind::Lost,
            call: String::new(),
            message: String::new(),
        }).into_iter().collect();
        if !described {
            for mig in inventory.gpus.iter_mut().filter_map(|gpu| gpu.mig.as_mut()) {
                mig.devices.iter_mut().for_each(|device| device.attributes = None);
            }
        }
        let vgpu = host.map_or(Vgpu::No, |(version, branch)| Vgpu::Yes(VgpuHost {
            driver_version: Some(version),
            driver_branch: Some(branch),
        }));
        let node = Node { machine, timestamp: Some(u64::MAX), ..node([
            function("0000:10:00.0", 0x03_02_00, vgpu),
            function("0000:11:00.0", class, Vgpu::No),
        ]) };
        let sharing = match sharing {
            "none" => "{}".to_owned(),
            sharing => {
                let resources = "[{ name: gpu, replicas: 2 }, { name: mig-1g.1gb, replicas: 3 }]";
                format!("{{ {sharing}: {{ resources: {resources} }} }}")
            }
        };
        let config = config(&format!("flags: {{ migStrategy: {strategy} }}\nsharing: {sharing}"));
        let labels = match labels(&inventory, &node, &config, Options { per_model }) {
            Ok((labels, _)) => labels,
            Err(Error::MpsOnMig { index }) => {
                prop_assert!(inventory.gpus.iter().any(|gpu| gpu.index == index && gpu.mig_enabled()));
                return Ok(());
            }
        };
        let degraded = lost.is_some_and(|lost| inventory.gpus.iter().all(|gpu| gpu.index != lost));
        prop_assert_eq!(degraded, labels.get(DEGRADED).is_some());
        let pci = pci_labels(&node);
        for (key, value) in labels.iter().chain(&pci) {
            prop_assert!(key.as_str().parse::<LabelKey>().is_ok(), "{key}");
            prop_assert!(["nvidia.com", "feature.node.kubernetes.io"].contains(&key.domain()), "{key}");
            let value = value.as_str();
            let end = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
            prop_assert!(value.len() <= 63 && end(value.chars().next()) && end(value.chars().last()), "{value}");
            prop_assert!(value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)), "{value}");
        }
        prop_assert_eq!(Labels::parse_feature_file(&labels.to_string()).unwrap(), labels);
    }
}
