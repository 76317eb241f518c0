use gpu_cdi::{
    DeviceNumber, DriverFiles, Error, GenerateOptions, Generated, HookName, SkipReason, Version,
    gpu_core::{Inventory, Mig},
};

use crate::{
    driver_root::{DriverRoot, as_recorded, inventory},
    elf,
};

const GPUS: [(&str, &str, u32); 2] = [
    ("GPU-00000000-0000-0000-0000-000000000001", "0000:1a:00.0", 0),
    ("GPU-00000000-0000-0000-0000-000000000002", "0000:1b:00.0", 1),
];

/// Two GPUs, a driver library, and DRM nodes of the first GPU.
fn node() -> (Inventory, DriverFiles) {
    let root = DriverRoot::empty();
    root.file("usr/lib64/libcuda.so.1.2.3", &elf::library(Some("libcuda.so.1")));
    for path in ["dev/nvidia0", "dev/nvidia1", "dev/nvidiactl"] {
        root.file(path, b"");
    }
    let mut files = root.discover();
    as_recorded(&mut files, "/", "/", 510);
    (inventory("1.2.3", &GPUS), files)
}

fn generate(inventory: &Inventory, files: &DriverFiles) -> Generated {
    gpu_cdi::generate(inventory, files, &GenerateOptions::default()).expect("a spec")
}

fn names(generated: &Generated) -> Vec<&str> {
    generated
        .spec
        .devices
        .iter()
        .map(|device| device.name.as_str())
        .collect()
}

#[test]
fn a_gpu_without_its_node_is_skipped_and_the_others_stay() {
    let (inventory, mut files) = node();
    files.device_nodes.retain(|node| node.path != "/dev/nvidia0");
    let generated = generate(&inventory, &files);
    assert_eq!(names(&generated), ["1", GPUS[1].0, "all"]);
    let path = "/dev/nvidia0".to_owned();
    assert_eq!(generated.skipped[0].reason, SkipReason::DeviceNodeMissing { path });
    assert_eq!(
        generated.skipped[0].to_string(),
        format!("GPU 0 ({}) has no device node `/dev/nvidia0`", GPUS[0].0)
    );
}

#[test]
fn a_display_gpu_is_skipped_and_the_others_stay() {
    for name in ["DGX Display", "NVIDIA DGX Display"] {
        let (mut inventory, files) = node();
        name.clone_into(&mut inventory.gpus[0].name);
        let generated = generate(&inventory, &files);
        assert_eq!(names(&generated), ["1", GPUS[1].0, "all"]);
        assert_eq!(
            generated.skipped[0].to_string(),
            format!("GPU 0 ({}) is a `{name}`, which is not for programs", GPUS[0].0)
        );
    }
    let (mut inventory, files) = node();
    "NVIDIA DGX Display Max".clone_into(&mut inventory.gpus[0].name);
    assert_eq!(generate(&inventory, &files).skipped, []);
}

#[test]
fn a_gpu_in_mig_mode_without_mig_devices_is_skipped_and_the_others_stay() {
    let (mut inventory, files) = node();
    inventory.gpus[1].mig = Some(Mig {
        enabled: true,
        pending_enabled: true,
        ..Mig::default()
    });
    let generated = generate(&inventory, &files);
    assert_eq!(names(&generated), ["0", GPUS[0].0, "all"]);
    assert_eq!(generated.skipped[0].reason, SkipReason::NoMigDevices);
}

#[test]
fn a_node_without_any_gpu_to_offer_is_an_error_that_says_why() {
    let (inventory, mut files) = node();
    files.device_nodes.clear();
    let error = gpu_cdi::generate(&inventory, &files, &GenerateOptions::default()).unwrap_err();
    assert!(matches!(&error, Error::NothingToDescribe { skipped } if skipped.len() == 2));
    assert!(
        error
            .to_string()
            .starts_with("no GPU to describe: GPU 0 (GPU-00000000-"),
        "{error}"
    );

    let error = gpu_cdi::generate(&Inventory::default(), &files, &GenerateOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "no GPU to describe");
}

#[test]
fn a_driver_root_without_driver_is_an_error_that_names_both() {
    let (inventory, _) = node();
    let files = DriverRoot::empty().discover();
    let error = gpu_cdi::generate(&inventory, &files, &GenerateOptions::default()).unwrap_err();
    let root = &files.driver_root;
    assert_eq!(
        error.to_string(),
        format!("no NVIDIA driver libraries of version 1.2.3 in the driver root `{root}`")
    );
}

#[test]
fn a_gpu_that_does_not_exist_cannot_be_selected() {
    let (inventory, files) = node();
    let mut options = GenerateOptions::default();
    options.devices = vec!["7".parse().unwrap()];
    let error = gpu_cdi::generate(&inventory, &files, &options).unwrap_err();
    assert_eq!(
        error.to_string(),
        "no GPU or MIG device `7` on this node, which has `0`, `1`"
    );
}

#[test]
fn minor_numbers_name_the_node_and_indices_the_device() {
    let (mut inventory, files) = node();
    (inventory.gpus[0].minor, inventory.gpus[1].minor) = (1, 0);
    let generated = generate(&inventory, &files);
    let first = &generated.spec.devices[0];
    assert_eq!(
        (first.name.as_str(), first.container_edits.device_nodes[0].path.as_str()),
        ("0", "/dev/nvidia1")
    );
}

#[test]
fn drm_nodes_come_with_their_gpu_and_its_links() {
    let (inventory, mut files) = node();
    let mut node = files.device_nodes[0].clone();
    for (path, minor) in [("/dev/dri/card1", 1), ("/dev/dri/renderD128", 128)] {
        path.clone_into(&mut node.path);
        node.number = Some(DeviceNumber { major: 226, minor });
        files.device_nodes.push(node.clone());
    }
    let names = ["card1", "controlD64", "renderD128"].map(str::to_owned).to_vec();
    files.drm.insert(GPUS[0].1.parse().unwrap(), names);
    for (link, target) in [("card", "../card1"), ("render", "../renderD129")] {
        files
            .links
            .insert(format!("/dev/dri/by-path/pci-0000:1a:00.0-{link}"), target.to_owned());
    }
    let generated = generate(&inventory, &files);
    let edits = &generated.spec.devices[0].container_edits;
    let paths: Vec<_> = edits.device_nodes.iter().map(|node| node.path.as_str()).collect();
    assert_eq!(paths, ["/dev/nvidia0", "/dev/dri/card1", "/dev/dri/renderD128"]);
    // The other link leads to a node that the container does not get.
    assert_eq!(
        edits.hooks[0].args[2..],
        ["--link", "../card1::/dev/dri/by-path/pci-0000:1a:00.0-card"]
    );
    assert_eq!(generated.spec.devices[1].container_edits.hooks, []);
}

#[test]
fn a_node_for_its_group_only_adds_the_group_and_needs_0_7_0() {
    let (inventory, mut files) = node();
    for node in &mut files.device_nodes {
        (node.mode, node.gid) = (0o660, 44);
    }
    let generated = generate(&inventory, &files);
    assert_eq!(generated.spec.cdi_version, Version::V0_7_0);
    assert_eq!(generated.spec.container_edits.additional_gids, [44]);
    assert_eq!(generated.spec.devices[0].container_edits.device_nodes[0].gid, Some(44));

    let mut options = GenerateOptions::default();
    options.additional_gids = false;
    let spec = gpu_cdi::generate(&inventory, &files, &options).unwrap().spec;
    assert_eq!(
        (spec.cdi_version, spec.container_edits.additional_gids),
        (Version::V0_5_0, vec![])
    );
}

#[test]
fn names_that_start_with_letters_on_the_host_root_need_only_0_3_0() {
    let (inventory, files) = node();
    let mut options = GenerateOptions::default();
    options.names = vec![gpu_cdi::NameStrategy::TypeIndex];
    let generated = gpu_cdi::generate(&inventory, &files, &options).unwrap();
    assert_eq!(names(&generated), ["all", "gpu0", "gpu1"]);
    assert_eq!(generated.spec.cdi_version, Version::V0_3_0);
}

#[test]
fn the_host_sees_driver_and_devices_under_its_own_roots() {
    let (inventory, mut files) = node();
    files.binaries = vec![gpu_cdi::FoundFile {
        path: "/usr/bin/nvidia-smi".to_owned(),
        content: Some("/etc/alternatives/nvidia-smi".to_owned()),
    }];
    let mut options = GenerateOptions::default();
    options.host_driver_root = Some("/run/nvidia/driver".to_owned());
    let spec = gpu_cdi::generate(&inventory, &files, &options).unwrap().spec;
    let mounts: Vec<_> = spec
        .container_edits
        .mounts
        .iter()
        .map(|mount| mount.host_path.as_str())
        .collect();
    let expected = [
        "/run/nvidia/driver/etc/alternatives/nvidia-smi",
        "/run/nvidia/driver/usr/lib64/libcuda.so.1.2.3",
    ];
    assert_eq!(mounts, expected);
    let host_path = |spec: &gpu_cdi::Spec| spec.container_edits.device_nodes[0].host_path.clone();
    assert_eq!(host_path(&spec).as_deref(), Some("/run/nvidia/driver/dev/nvidiactl"));

    options.host_dev_root = Some("/".to_owned());
    let spec = gpu_cdi::generate(&inventory, &files, &options).unwrap().spec;
    assert_eq!(host_path(&spec), None);
}

#[test]
fn the_hook_program_and_ldconfig_are_as_told() {
    let (inventory, files) = node();
    let mut options = GenerateOptions::default();
    options.hook_path = "/usr/bin/nvidia-ctk".to_owned();
    options.ldconfig_path = Some("/sbin/ldconfig.real".to_owned());
    let spec = gpu_cdi::generate(&inventory, &files, &options).unwrap().spec;
    let hook = spec
        .container_edits
        .hooks
        .iter()
        .find(|hook| hook.args[2] == "update-ldcache")
        .unwrap();
    let expected = [
        "nvidia-ctk",
        "hook",
        "update-ldcache",
        "--ldconfig-path",
        "/sbin/ldconfig.real",
        "--folder",
    ];
    assert_eq!(hook.args[..6], expected);
    assert_eq!(hook.path, "/usr/bin/nvidia-ctk");

    options.ldconfig_path = Some("@/sbin/ldconfig".to_owned());
    gpu_cdi::generate(&inventory, &files, &options).expect("the mark is the vendor's, and the hook drops it");
    for relative in ["sbin/ldconfig", "@sbin/ldconfig", ""] {
        options.ldconfig_path = Some(relative.to_owned());
        let error = gpu_cdi::generate(&inventory, &files, &options).unwrap_err();
        let expected = format!("the ldconfig `{relative}` is not an absolute path");
        assert_eq!(
            error.to_string(),
            expected,
            "the hook refuses it, and no container starts"
        );
    }

    options.ldconfig_path = None;
    options.hook_path = String::new();
    let error = gpu_cdi::generate(&inventory, &files, &options).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid CDI spec: `containerEdits.hooks[0].path` is empty"
    );
}

#[test]
fn no_hook_has_an_empty_environment() {
    let (inventory, files) = node();
    let spec = generate(&inventory, &files).spec;
    assert_eq!(spec.container_edits.hooks.len(), 5);
    assert!(spec.container_edits.hooks.iter().all(|hook| !hook.env.is_empty()));
}

#[test]
fn a_name_that_is_none_of_a_hook_is_answered_with_all_of_them() {
    assert_eq!(
        HookName::parse_list("all,nothing").unwrap_err().to_string(),
        "`nothing` is none of the hooks create-symlinks, enable-cuda-compat, update-ldcache, \
         disable-device-node-modification, update-application-profile, chmod"
    );
}

#[test]
fn yaml_and_json_are_read_back_the_same() {
    let (inventory, files) = node();
    let spec = generate(&inventory, &files).spec;
    for format in [gpu_cdi::Format::Json, gpu_cdi::Format::Yaml] {
        let text = spec.to_text(format).unwrap();
        assert_eq!(gpu_cdi::Spec::from_text(&text, format).unwrap(), spec, "{text}");
    }
}
