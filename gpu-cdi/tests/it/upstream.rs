//! The vendor's specs, generated again from the driver roots and GPUs they were recorded with.

use std::{collections::BTreeSet, fs, path::Path};

use gpu_cdi::{
    DriverFiles, Format, GenerateOptions, HookName, Kind, NameStrategy, PathSide, Spec, gpu_core::Inventory,
};
use serde::Deserialize;
use serde_json::Value;

use crate::driver_root::{DriverRoot, as_recorded, inventory};

pub(crate) const DRIVER_ROOT: &str = include_str!("../upstream/nvidia-ctk-1.20.0/driver-root-550.163.01.txt");
const DRIVER_ROOT_H200: &str = include_str!("../upstream/nvidia-ctk-1.20.0/driver-root-h200.txt");

pub(crate) fn record(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upstream").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A recorded spec, with the lists put back that are those of `h100-default`.
fn spec(case: &str) -> Spec {
    let json = |case: &str| -> Value {
        serde_json::from_str(&record(&format!("nvidia-ctk-1.20.0/{case}.json"))).expect("a record in JSON")
    };
    let base = json("h100-default");
    let mut value = json(case);
    for (key, entry) in value["containerEdits"].as_object_mut().expect("edits") {
        if entry == "h100-default" {
            *entry = base["containerEdits"][key].clone();
        }
    }
    serde_json::from_value(value).expect("a spec")
}

#[derive(Deserialize)]
struct Node {
    driver: String,
    gpus: Vec<(String, String, u32)>,
}

/// The first `count` GPUs of a recorded profile; all for 0.
pub(crate) fn profile(name: &str, count: usize) -> Inventory {
    let mut profiles: std::collections::HashMap<String, Node> =
        serde_json::from_str(&record("nvidia-ctk-1.20.0/inventories.json")).expect("inventories");
    let node = profiles.remove(name).expect("a recorded profile");
    let count = if count == 0 { node.gpus.len() } else { count };
    let gpus: Vec<_> = node
        .gpus
        .iter()
        .map(|(uuid, pci, minor)| (uuid.as_str(), pci.as_str(), *minor))
        .collect();
    inventory(&node.driver, &gpus[..count])
}

pub(crate) fn files(inventory: &Inventory, dev_root: &str) -> DriverFiles {
    let gpus = u32::try_from(inventory.gpus.len()).expect("few GPUs");
    let mut files = DriverRoot::from_listing(DRIVER_ROOT, gpus).discover();
    assert_eq!(files.problems, []);
    as_recorded(&mut files, "/driver-root", dev_root, 510);
    files
}

#[track_caller]
fn check(case: &str, inventory: &Inventory, options: &GenerateOptions) {
    check_with(case, inventory, &files(inventory, "/driver-root"), options);
}

#[track_caller]
fn check_with(case: &str, inventory: &Inventory, files: &DriverFiles, options: &GenerateOptions) {
    let generated = gpu_cdi::generate(inventory, files, options).unwrap_or_else(|error| panic!("{case}: {error}"));
    assert_eq!(generated.skipped, [], "{case}");
    check_spec(case, &generated.spec);
}

#[track_caller]
pub(crate) fn check_spec(case: &str, ours: &Spec) {
    let text = |spec: &Spec| serde_json::to_string_pretty(spec).expect("JSON");
    assert!(
        *ours == spec(case),
        "{case}:\n{}",
        first_difference(&text(ours), &text(&spec(case)))
    );
}

/// The first line in which two texts differ.
fn first_difference(ours: &str, theirs: &str) -> String {
    let mut lines = ours.lines().zip(theirs.lines()).enumerate();
    match lines.find(|(_, (ours, theirs))| ours != theirs) {
        Some((i, (ours, theirs))) => format!("line {}: `{ours}`, recorded `{theirs}`", i + 1),
        None => "one is longer than the other".to_owned(),
    }
}

#[test]
fn specs_of_whole_nodes_are_as_recorded() {
    let options = GenerateOptions::default();
    check("h100-default", &profile("h100", 0), &options);
    check("a100-default", &profile("a100", 0), &options);
    check("t4-default", &profile("t4", 0), &options);
    check("a100-1gpu-default", &profile("a100", 1), &options);
    check("a100-1gpu-mode-nvml", &profile("a100", 1), &options);
    // The vendor's switches for which there is nothing to switch: its spec is the default one.
    check("a100-1gpu-ff-disable-nvsandboxutils", &profile("a100", 1), &options);
    check(
        "a100-1gpu-ff-allow-additional-gids-for-device-nodes",
        &profile("a100", 1),
        &options,
    );
}

#[test]
fn names_kinds_and_selections_are_as_recorded() {
    let two = profile("a100", 2);
    for (case, strategy) in [
        ("a100-2gpu-names-index", NameStrategy::Index),
        ("a100-2gpu-names-uuid", NameStrategy::Uuid),
    ] {
        let mut options = GenerateOptions::default();
        options.names = vec![strategy];
        check(case, &two, &options);
    }
    let mut options = GenerateOptions::default();
    options.kind = Kind::new("example.com", "acc").expect("a kind");
    check("a100-2gpu-vendor-class", &two, &options);

    for id in ["GPU-12345678-1234-1234-1234-123456780001", "1"] {
        let mut options = GenerateOptions::default();
        options.devices = vec![id.parse().expect("an id")];
        check("a100-2gpu-device-id-uuid", &two, &options);
    }
}

#[test]
fn hooks_left_out_are_as_recorded() {
    let one = profile("a100", 1);
    for (case, names) in [
        ("a100-1gpu-no-hooks", "all"),
        ("a100-1gpu-disable-two-hooks", "enable-cuda-compat,create-symlinks"),
    ] {
        let mut options = GenerateOptions::default();
        options.disabled_hooks = HookName::parse_list(names).expect("names");
        check(case, &one, &options);
    }
}

#[test]
fn a_device_root_of_its_own_is_as_recorded() {
    let one = profile("a100", 1);
    let mut options = GenerateOptions::default();
    check_with("a100-1gpu-devroot-slash", &one, &files(&one, "/"), &options);
    options.additional_gids = false;
    check("a100-1gpu-ff-no-additional-gids-for-device-nodes", &one, &options);
}

#[test]
fn json_is_as_recorded_to_the_byte() {
    let one = profile("a100", 1);
    let generated = gpu_cdi::generate(&one, &files(&one, "/driver-root"), &GenerateOptions::default()).expect("a spec");
    let text = generated.spec.to_text(Format::Json).expect("JSON");
    assert_eq!(text, record("nvidia-ctk-1.20.0/a100-1gpu-json.out"));
}

#[test]
fn the_device_plugins_spec_is_as_recorded_to_the_byte() {
    let two = profile("a100", 2);
    let mut options = GenerateOptions::default();
    options.kind = Kind::new("k8s.device-plugin.nvidia.com", "gpu").expect("a kind");
    options.names = vec![NameStrategy::Uuid];
    options.all_device = false;
    options.host_driver_root = Some("/".to_owned());
    let generated = gpu_cdi::generate(&two, &files(&two, "/driver-root"), &options).expect("a spec");
    let text = generated.spec.to_text(Format::Json).expect("JSON");
    assert_eq!(text, record("nvidia-device-plugin-0.20.0/a100-cdi-cri.json").trim_end());
}

#[test]
fn a_real_h200_whose_driver_only_the_loaders_cache_knows_is_as_recorded() {
    let inventory = profile("h200-real", 0);
    let root = DriverRoot::from_listing(DRIVER_ROOT_H200, 1);
    // Not loaded on that machine.
    fs::remove_file(root.path("dev/nvidia-modeset")).expect("a node");
    root.file("etc/ld.so.cache", &loader_cache(&root));
    root.sys_file(
        "sys/module/firmware_class/parameters/path",
        b"/usr/local/nvidia/firmware\n",
    );
    let mut config = root.config();
    config.driver_version = Some("580.159.04".to_owned());
    config.binary_search_paths = vec!["/usr/local/nvidia/bin".into()];
    let mut files = DriverFiles::discover(&config).expect("a driver root");
    assert_eq!(files.problems, []);
    as_recorded(&mut files, "/", "/", 238);
    check_with("real-h200", &inventory, &files, &GenerateOptions::default());
}

#[test]
fn a_real_h200_to_manage_is_as_recorded() {
    let root = DriverRoot::from_listing(DRIVER_ROOT_H200, 1);
    fs::remove_file(root.path("dev/nvidia-modeset")).expect("a node");
    for name in [
        "nvidia-caps/nvidia-cap1",
        "nvidia-caps/nvidia-cap2",
        "nvidia-nvlink",
        "nvidia-fs0",
    ] {
        root.file(&format!("dev/{name}"), b"");
    }
    root.file("etc/ld.so.cache", &loader_cache(&root));
    root.sys_file(
        "sys/module/firmware_class/parameters/path",
        b"/usr/local/nvidia/firmware\n",
    );
    let mut config = root.config();
    config.binary_search_paths = vec!["/usr/local/nvidia/bin".into()];
    let mut files = DriverFiles::discover(&config).expect("a driver root");
    files.device_nodes.retain(|node| node.path != "/dev/nvidia-nvlink");
    as_recorded(&mut files, "/", "/", 238);
    for (path, mode) in [
        ("/dev/nvidia-caps/nvidia-cap1", 256),
        ("/dev/nvidia-caps/nvidia-cap2", 292),
    ] {
        let mut nodes = files.device_nodes.iter_mut();
        nodes.find(|node| node.path == path).expect("a capability").mode = mode;
    }
    let spec = gpu_cdi::generate_management(&files, &GenerateOptions::default()).expect("a spec");
    check_spec("real-h200-management", &spec);
}

#[test]
fn a_node_to_manage_is_as_recorded() {
    let one = profile("a100", 1);
    let spec = gpu_cdi::generate_management(&files(&one, "/driver-root"), &GenerateOptions::default());
    check_spec("a100-1gpu-mode-management", &spec.expect("a spec"));
}

#[test]
fn imex_channels_are_as_recorded() {
    let root = DriverRoot::empty();
    for channel in 0..4 {
        root.file(&format!("dev/nvidia-caps-imex-channels/channel{channel}"), b"");
    }
    let mut files = root.discover();
    (files.driver_root, files.dev_root) = ("/driver-root".to_owned(), "/driver-root".to_owned());
    let options = GenerateOptions::default();
    let all = gpu_cdi::generate_imex(&files, &[], &options).expect("a spec");
    check_spec("gb200-4gpu-mode-imex", &all);
    let some = ["3", "channel0"].map(|channel| channel.parse().expect("a channel"));
    let some = gpu_cdi::generate_imex(&files, &some, &options).expect("a spec");
    check_spec("gb200-4gpu-mode-imex-0", &some);
}

#[test]
fn a_moved_driver_root_is_as_recorded() {
    let one = profile("a100", 1);
    let generated = gpu_cdi::generate(&one, &files(&one, "/driver-root"), &GenerateOptions::default());
    let mut spec = generated.expect("a spec").spec;
    spec.transform_root("/driver-root", "/run/nvidia/driver", PathSide::Host);
    check_spec("cdi-transform-root", &spec);
}

/// A loader cache as `ldconfig` writes it for that machine: the SONAMEs of the driver's folder.
fn loader_cache(root: &DriverRoot) -> Vec<u8> {
    let dir = "/usr/local/nvidia/lib64";
    let names: BTreeSet<_> = fs::read_dir(root.path(&dir[1..]))
        .expect("the driver's folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .filter(|name| name.contains(".so."))
        .collect();
    let start = 48 + names.len() * 24;
    let (mut table, mut strings) = (Vec::new(), Vec::new());
    for name in &names {
        let path = u32::try_from(start + strings.len()).expect("a small cache");
        let key = path + u32::try_from(dir.len()).expect("a short name") + 1;
        for value in [0x0303, key, path, 0, 0, 0] {
            table.extend(u32::to_ne_bytes(value));
        }
        strings.extend(format!("{dir}/{name}\0").into_bytes());
    }
    let mut cache = b"glibc-ld.so.cache1.1".to_vec();
    for length in [names.len(), strings.len()] {
        cache.extend(u32::try_from(length).expect("a small cache").to_ne_bytes());
    }
    cache.resize(48, 0);
    cache.extend(table);
    cache.extend(strings);
    cache
}
