//! MIG devices: the vendor's specs generated again, and what happens when a part of one is missing.

use std::{collections::HashMap, fmt::Write as _};

use gpu_cdi::{
    DeviceFile, DeviceNumber, DriverFiles, Error, GenerateOptions, Generated, NameStrategy, SkipReason,
    gpu_core::{GpuInstance, Inventory, Mig, MigDevice, Placement},
};

use crate::{
    driver_root::{DriverRoot, as_recorded},
    upstream::{DRIVER_ROOT, check_spec, profile, record},
};

/// The number of an instance's node, as the driver counts.
fn minor(gi: u32, ci: Option<u32>) -> u32 {
    3 + gi * 9 + ci.map_or(0, |ci| ci + 1)
}

/// The first A100, divided as in a record.
pub(crate) fn divided(layout: &str) -> Inventory {
    let mut layouts: HashMap<String, Vec<(u32, u32, String)>> =
        serde_json::from_str(&record("nvidia-ctk-1.20.0/mig-layouts.json")).expect("layouts");
    let devices = layouts.remove(layout).expect("a recorded layout");
    let mut inventory = profile("a100", 1);
    inventory.gpus[0].mig = Some(mig(&devices));
    inventory
}

fn mig(devices: &[(u32, u32, String)]) -> Mig {
    let device = |(index, (gi, ci, uuid)): (usize, &(u32, u32, String))| MigDevice {
        index: u32::try_from(index).expect("few devices"),
        uuid: uuid.parse().expect("a UUID"),
        gpu_instance: *gi,
        compute_instance: *ci,
        profile: None,
        name: None,
        attributes: None,
    };
    let instance = |(gi, _, _): &(u32, u32, String)| GpuInstance {
        id: *gi,
        profile_id: 0,
        profile: None,
        placement: Placement { start: 0, size: 1 },
        compute_instances: Vec::new(),
    };
    Mig {
        enabled: true,
        pending_enabled: true,
        profiles: Vec::new(),
        gpu_instances: devices.iter().map(instance).collect(),
        devices: devices.iter().enumerate().map(device).collect(),
    }
}

/// The recorded driver root with the files of these MIG devices: their nodes, and what `/proc` says of them.
pub(crate) fn root(inventory: &Inventory) -> DriverRoot {
    let root = DriverRoot::from_listing(DRIVER_ROOT, 1);
    let instances = "proc/driver/nvidia/capabilities/gpu0/mig";
    for device in inventory
        .gpus
        .iter()
        .flat_map(|gpu| &gpu.mig)
        .flat_map(|mig| &mig.devices)
    {
        let (gi, ci) = (device.gpu_instance, device.compute_instance);
        for (folder, minor) in [
            (format!("gi{gi}"), minor(gi, None)),
            (format!("gi{gi}/ci{ci}"), minor(gi, Some(ci))),
        ] {
            let text = format!("DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
            root.sys_file(&format!("{instances}/{folder}/access"), text.as_bytes());
            root.file(&format!("dev/nvidia-caps/nvidia-cap{minor}"), b"");
        }
    }
    root
}

pub(crate) fn files(root: &DriverRoot) -> DriverFiles {
    let mut files = root.discover();
    assert_eq!(files.problems, []);
    as_recorded(&mut files, "/driver-root", "/driver-root", 510);
    for node in files
        .device_nodes
        .iter_mut()
        .filter(|node| node.path.starts_with("/dev/nvidia-caps/"))
    {
        let minor = node.number.expect("a device").minor;
        node.number = Some(DeviceNumber { major: 236, minor });
    }
    files
}

fn names(generated: &Generated) -> Vec<&str> {
    let devices = generated.spec.devices.iter();
    devices.map(|device| device.name.as_str()).collect()
}

fn generate(inventory: &Inventory, files: &DriverFiles) -> Generated {
    let mut options = GenerateOptions::default();
    options.names = vec![NameStrategy::Index];
    gpu_cdi::generate(inventory, files, &options).expect("a spec")
}

#[test]
fn specs_of_mig_devices_are_as_recorded() {
    #[track_caller]
    fn check(case: &str, layout: &str, options: &GenerateOptions) {
        let inventory = divided(layout);
        let generated = gpu_cdi::generate(&inventory, &files(&root(&inventory)), options).expect("a spec");
        assert_eq!(generated.skipped, []);
        check_spec(case, &generated.spec);
    }
    let options = GenerateOptions::default();
    check("a100-1gpu-mig-balanced", "balanced", &options);
    check("a100-1gpu-mig-uniform", "uniform", &options);
    check("a100-1gpu-mig-ci", "ci", &options);

    let mut names = GenerateOptions::default();
    names.names = vec![NameStrategy::TypeIndex, NameStrategy::Uuid];
    check("a100-1gpu-mig-balanced-names", "balanced", &names);

    for id in ["0:0", "MIG-98b92576-068e-5ab5-ae20-c827b95ede65"] {
        let mut selected = GenerateOptions::default();
        selected.devices = vec![id.parse().expect("an id")];
        check("a100-1gpu-mig-device-id-0-0", "balanced", &selected);
    }
    let mut selected = GenerateOptions::default();
    selected.devices = vec!["0".parse().expect("an id")];
    check("a100-1gpu-mig-balanced", "balanced", &selected);
}

#[test]
fn the_drivers_table_serves_where_the_folder_of_capabilities_is_hidden() {
    let inventory = divided("balanced");
    let root = root(&inventory);
    std::fs::remove_dir_all(root.sys_root().join("proc/driver/nvidia")).expect("a folder");
    let mut table = "config 1\nmonitor 2\n".to_owned();
    for gpu in 0..32 {
        for gi in 0..15 {
            writeln!(table, "gpu{gpu}/gi{gi}/access {}", 135 * gpu + minor(gi, None)).expect("text");
            for ci in 0..8 {
                let number = 135 * gpu + minor(gi, Some(ci));
                writeln!(table, "gpu{gpu}/gi{gi}/ci{ci}/access {number}").expect("text");
            }
        }
    }
    root.sys_file("proc/driver/nvidia-caps/mig-minors", table.as_bytes());
    let files = files(&root);
    assert_eq!(files.capabilities.len(), 135, "only those of the GPU that has a node");
    check_spec(
        "a100-1gpu-mig-balanced",
        &gpu_cdi::generate(&inventory, &files, &GenerateOptions::default())
            .expect("a spec")
            .spec,
    );
}

#[test]
fn a_mig_device_without_one_of_its_nodes_is_skipped_and_the_others_stay() {
    #[track_caller]
    fn check(lost: &str, expected: &[&str], message: &str) {
        let inventory = divided("balanced");
        let mut files = files(&root(&inventory));
        files.device_nodes.retain(|node| node.path != lost);
        let generated = generate(&inventory, &files);
        assert_eq!(names(&generated), expected);
        assert_eq!(generated.skipped[0].to_string(), message);
        assert_eq!(generated.skipped.len(), 1);
    }
    check(
        "/dev/nvidia-caps/nvidia-cap48",
        &["0:0", "0:2", "0:3", "all"],
        "MIG device 0:1 (MIG-75f80975-f2d7-56c1-a7ae-66ede2d41ccd) has no device node `/dev/nvidia-caps/nvidia-cap48`",
    );
    check(
        "/dev/nvidia-caps/nvidia-cap13",
        &["0:1", "0:2", "0:3", "all"],
        "MIG device 0:0 (MIG-98b92576-068e-5ab5-ae20-c827b95ede65) has no device node `/dev/nvidia-caps/nvidia-cap13`",
    );
}

#[test]
fn a_mig_device_that_the_driver_no_longer_knows_is_skipped_by_name() {
    let inventory = divided("balanced");
    let mut files = files(&root(&inventory));
    files.capabilities.remove("gpu0/gi13/ci0/access");
    let generated = generate(&inventory, &files);
    assert_eq!(names(&generated), ["0:0", "0:1", "0:3", "all"]);
    let name = "gpu0/gi13/ci0/access".to_owned();
    assert_eq!(generated.skipped[0].reason, SkipReason::CapabilityUnknown { name });
}

#[test]
fn whole_and_divided_gpus_stand_beside_each_other_and_a_broken_one_costs_neither() {
    let mut inventory = divided("balanced");
    inventory.gpus.extend(profile("a100", 4).gpus.drain(1..));
    let undivided = mig(&[]);
    inventory.gpus[3].mig = Some(undivided);
    let mut files = files(&root(&inventory));
    let node = files.device_nodes[0].clone();
    for minor in [2, 3] {
        files.device_nodes.push(DeviceFile {
            path: format!("/dev/nvidia{minor}"),
            ..node.clone()
        });
    }
    let generated = generate(&inventory, &files);
    assert_eq!(names(&generated), ["0:0", "0:1", "0:2", "0:3", "2", "all"]);
    let reasons: Vec<_> = generated
        .skipped
        .iter()
        .map(|skipped| (skipped.index, &skipped.reason))
        .collect();
    let path = "/dev/nvidia1".to_owned();
    assert_eq!(
        reasons,
        [
            (1, &SkipReason::DeviceNodeMissing { path }),
            (3, &SkipReason::NoMigDevices)
        ]
    );
    let all = &generated.spec.devices[5].container_edits;
    assert_eq!(
        all.device_nodes.len(),
        10,
        "two GPUs, and two nodes of each of four MIG devices"
    );
}

#[test]
fn a_gpu_in_mig_mode_that_is_not_divided_alone_is_an_error_that_says_so() {
    let mut inventory = divided("balanced");
    let files = files(&root(&inventory));
    inventory.gpus[0].mig = Some(mig(&[]));
    let error = gpu_cdi::generate(&inventory, &files, &GenerateOptions::default()).unwrap_err();
    assert!(matches!(error, Error::NothingToDescribe { .. }));
    assert_eq!(
        error.to_string(),
        "no GPU to describe: GPU 0 (GPU-12345678-1234-1234-1234-123456780000) is in MIG mode and has no MIG devices"
    );
}

#[test]
fn only_mig_devices_that_draw_get_the_nodes_for_it() {
    let mut inventory = divided("balanced");
    let mut files = files(&root(&inventory));
    let address = inventory.gpus[0].pci.address;
    files.drm.insert(address, vec!["card1".to_owned()]);
    files.device_nodes.push(DeviceFile {
        path: "/dev/dri/card1".to_owned(),
        ..files.device_nodes[0].clone()
    });
    let devices = &mut inventory.gpus[0].mig.as_mut().expect("MIG").devices;
    devices[0].profile = Some("1g.5gb+gfx".parse().expect("a profile"));
    devices[1].profile = Some("1g.5gb+me".parse().expect("a profile"));
    let generated = generate(&inventory, &files);
    let draws = |device: &gpu_cdi::Device| {
        let nodes = &device.container_edits.device_nodes;
        nodes.iter().any(|node| node.path == "/dev/dri/card1")
    };
    let drawing: Vec<_> = generated.spec.devices.iter().map(draws).collect();
    assert_eq!(drawing, [true, false, false, false, true]);
}

#[test]
fn identifiers_of_old_drivers_are_no_names_of_cdi() {
    let mut inventory = divided("balanced");
    let files = files(&root(&inventory));
    let mut options = GenerateOptions::default();
    let old = "MIG-GPU-12345678-1234-1234-1234-123456780000/1/0";
    inventory.gpus[0].mig.as_mut().expect("MIG").devices[0].uuid = old.parse().expect("an identifier");
    let generated = gpu_cdi::generate(&inventory, &files, &options).expect("a spec");
    assert_eq!(names(&generated)[0], "0:0");
    assert_eq!((generated.spec.devices.len(), generated.skipped.len()), (8, 0));

    options.names = vec![NameStrategy::Uuid];
    let generated = gpu_cdi::generate(&inventory, &files, &options).expect("a spec");
    assert_eq!(generated.skipped[0].reason, SkipReason::NoName);
}
