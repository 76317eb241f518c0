use gpu_cdi::{Companion, DriverFiles, GenerateOptions, Spec};

use crate::driver_root::DriverRoot;

fn paths(spec: &Spec) -> Vec<&str> {
    let nodes = spec.devices[0].container_edits.device_nodes.iter();
    nodes.map(|node| node.path.as_str()).collect()
}

#[track_caller]
fn check(companion: Companion, files: &DriverFiles, expected: &[&str]) -> Spec {
    let spec = gpu_cdi::generate_companion(companion, files, &GenerateOptions::default()).expect("a spec");
    assert_eq!(spec.devices.len(), 1);
    assert_eq!(spec.devices[0].name.as_str(), "all");
    assert_eq!(spec.container_edits.env, ["NVIDIA_VISIBLE_DEVICES=void"]);
    assert_eq!(paths(&spec), expected);
    spec
}

#[test]
fn a_companion_is_one_device_with_all_its_nodes() {
    let root = DriverRoot::empty();
    for node in [
        "gdrdrv",
        "infiniband/rdma_cm",
        "infiniband/umad0",
        "infiniband/uverbs0",
        "infiniband/uverbs1",
        "nvidia-fs0",
        "nvidia-fs1",
        "nvidia-nvswitch0",
        "nvidia-nvswitchctl",
        "nvidia0",
    ] {
        root.file(&format!("dev/{node}"), b"");
    }
    root.file("run/udev/data/b8:0", b"");
    root.file("etc/cufile.json", b"{}");
    let files = root.discover();
    let spec = check(Companion::Gds, &files, &["/dev/nvidia-fs0", "/dev/nvidia-fs1"]);
    let mounts = spec.devices[0].container_edits.mounts.iter();
    let mounts: Vec<_> = mounts.map(|mount| mount.container_path.as_str()).collect();
    assert_eq!(mounts, ["/etc/cufile.json", "/run/udev"]);
    check(Companion::GdrCopy, &files, &["/dev/gdrdrv"]);
    let nodes = [
        "/dev/infiniband/rdma_cm",
        "/dev/infiniband/uverbs0",
        "/dev/infiniband/uverbs1",
    ];
    check(Companion::Mofed, &files, &nodes);
    check(
        Companion::NvSwitch,
        &files,
        &["/dev/nvidia-nvswitch0", "/dev/nvidia-nvswitchctl"],
    );
}

#[test]
fn what_a_node_does_not_have_is_named() {
    let files = DriverRoot::empty().discover();
    let root = &files.dev_root;
    for (companion, what) in [
        (Companion::Gds, "/dev/nvidia-fs*"),
        (Companion::GdrCopy, "/dev/gdrdrv"),
        (Companion::Mofed, "/dev/infiniband/uverbs* or /dev/infiniband/rdma_cm"),
        (Companion::NvSwitch, "/dev/nvidia-nvswitch*"),
    ] {
        let error = gpu_cdi::generate_companion(companion, &files, &GenerateOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), format!("no {what} in the device root `{root}`"));
        assert!(error.is_nothing_found());
    }
    let channel = ["7".parse().unwrap()];
    let error = gpu_cdi::generate_imex(&files, &channel, &GenerateOptions::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("no /dev/nvidia-caps-imex-channels/channel7 in the device root `{root}`")
    );
    assert!(
        gpu_cdi::generate_imex(&files, &[], &GenerateOptions::default())
            .unwrap_err()
            .is_nothing_found()
    );
}

#[test]
fn managing_needs_a_driver_and_nodes() {
    let root = DriverRoot::empty();
    let error = gpu_cdi::generate_management(&root.discover(), &GenerateOptions::default()).unwrap_err();
    assert!(
        error.to_string().starts_with("no NVIDIA driver libraries in"),
        "{error}"
    );
    root.file("usr/lib64/libcuda.so.1.2.3", &crate::elf::library(None));
    root.file("dev/nvidia-fs0", b"");
    let error = gpu_cdi::generate_management(&root.discover(), &GenerateOptions::default()).unwrap_err();
    assert!(error.to_string().starts_with("no NVIDIA device node in"), "{error}");
}
