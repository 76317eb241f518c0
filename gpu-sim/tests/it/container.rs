//! The library in a container that got nothing else of the node: a folder to `chroot` into.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path, process::Command};

use gpu_sim::NodeSpec;

use crate::Simulated;

/// A root folder with libc, the loader, and what a container gets of the driver: the library and `nvidia-smi`.
fn container(node: &Simulated) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a temporary folder can be made");
    let copy = |from: &Path, to: &Path| {
        let to = root.path().join(to.strip_prefix("/").unwrap_or(to));
        fs::create_dir_all(to.parent().expect("a file lies in a folder")).expect("a folder can be made");
        // By another process, so that none that this one starts can hold the copy open.
        let status = Command::new("cp").arg(from).arg(to).status();
        assert!(status.expect("cp runs").success());
    };
    // This test itself runs with both; the loader's name is fixed by the architecture.
    let maps = fs::read_to_string("/proc/self/maps").expect("a process sees its maps");
    let mapped = |part: &str| {
        let line = maps.lines().find(|line| line.contains(part)).expect("libc is mapped");
        Path::new(&line[line.find('/').expect("libc has a path")..]).to_owned()
    };
    let loader = if cfg!(target_arch = "aarch64") {
        "/lib/ld-linux-aarch64.so.1"
    } else {
        "/lib64/ld-linux-x86-64.so.2"
    };
    copy(&mapped("/ld-linux"), Path::new(loader));
    copy(&mapped("/libc.so.6"), Path::new("/usr/lib/libc.so.6"));
    let library = node.node.root().join(format!(
        "usr/lib/{}-linux-gnu/libnvidia-ml.so.1",
        std::env::consts::ARCH
    ));
    copy(&library, Path::new("/usr/lib/libnvidia-ml.so.1"));
    copy(
        &node.node.root().join("usr/bin/nvidia-smi"),
        Path::new("/usr/bin/nvidia-smi"),
    );
    fs::create_dir(root.path().join("dev")).expect("a folder can be made");
    root
}

fn device(root: &Path, name: &str, major: u32, minor: u32) {
    let path = root.join("dev").join(name);
    let status = Command::new("mknod")
        .arg(path)
        .args(["c", &major.to_string(), &minor.to_string()])
        .status();
    assert!(status.expect("mknod runs").success(), "root may make device nodes");
}

fn smi(root: &Path, arguments: &str) -> (String, i32) {
    let output = Command::new("chroot")
        .arg(root)
        .arg("/usr/bin/nvidia-smi")
        .args(arguments.split_whitespace())
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin") // chroot itself is looked for here
        .env("LD_LIBRARY_PATH", "/usr/lib")
        .env("NVIDIA_VISIBLE_DEVICES", "all")
        .output()
        .expect("chroot runs");
    (
        String::from_utf8(output.stdout).expect("UTF-8"),
        output.status.code().expect("it ends by itself"),
    )
}

#[test]
#[ignore = "needs root: chroot and mknod"]
fn a_container_sees_exactly_the_gpus_whose_device_nodes_it_has() {
    let node = Simulated::new(&NodeSpec::new("h100").seed(9).permute_pci(true));
    let container = container(&node);
    let root = container.path();
    let query = "--query-gpu=index,uuid --format=csv,noheader";
    assert_eq!(
        smi(root, query),
        (String::new(), 9),
        "without the control node there is no driver"
    );

    device(root, "nvidiactl", 195, 255);
    assert_eq!(smi(root, query), (String::new(), 6), "no GPU");

    let gpus = node.node.gpus();
    let (a, b, wrong) = (&gpus[5], &gpus[2], &gpus[0]);
    device(root, &format!("nvidia{}", a.minor), 195, a.minor);
    device(root, &format!("nvidia{}", b.minor), 195, b.minor);
    device(root, &format!("nvidia{}", wrong.minor), 195, wrong.minor + 100);
    fs::write(root.join(format!("dev/nvidia{}", gpus[1].minor)), "").unwrap();
    // In PCI order, counted from 0.
    assert_eq!(smi(root, query), (format!("0, {}\n1, {}\n", b.uuid, a.uuid), 0));
}

#[test]
#[ignore = "needs root: chroot and mknod"]
fn a_container_sees_exactly_the_mig_devices_whose_capability_nodes_it_has() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    // Made before the container got the library, and after.
    node.node.set_mig_mode(1, true).unwrap();
    let first = node.node.create_mig(1, "3g.40gb", None).unwrap();
    let container = container(&node);
    let root = container.path();
    device(root, "nvidiactl", 195, 255);
    device(root, "nvidia1", 195, 1);
    fs::create_dir(root.join("dev/nvidia-caps")).unwrap();
    let devices = || {
        let (list, code) = smi(root, "-L");
        assert_eq!(code, 0, "{list}");
        let mut lines = list.lines();
        let whole = lines.next().unwrap();
        assert!(whole.contains(&node.node.gpus()[1].uuid), "{list}");
        lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(devices(), [] as [&str; 0]);
    let capability = |gpu_instance: u32, compute: Option<u32>| {
        let minor = 3 + 135 + 9 * gpu_instance + compute.map_or(0, |compute| 1 + compute);
        device(root, &format!("nvidia-caps/nvidia-cap{minor}"), 236, minor);
    };
    capability(first.id, None);
    assert_eq!(devices(), [] as [&str; 0], "the compute instance needs a node, too");
    capability(first.id, Some(0));
    let line = |profile: &str, at: usize, uuid: &str| format!("MIG {profile:<12}Device {at:>2}: (UUID: {uuid})");
    let expected = vec![line("3g.40gb", 0, &first.devices[0].2)];
    assert_eq!(devices(), expected);
    // Another one that the container has no nodes of.
    node.node.create_mig(1, "1g.10gb", None).unwrap();
    assert_eq!(devices(), expected);
}

#[test]
#[ignore = "needs root: mknod"]
fn root_makes_real_device_nodes() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2).seed(1).permute_pci(true));
    let number = |name: &str| {
        // Linux's encoding for numbers this small.
        let device = fs::metadata(node.node.root().join("dev").join(name)).unwrap().rdev();
        (device >> 8 & 0xfff, device & 0xff)
    };
    for gpu in node.node.gpus() {
        assert_eq!(number(&format!("nvidia{}", gpu.minor)), (195, u64::from(gpu.minor)));
    }
    assert_eq!(number("nvidiactl"), (195, 255));
    assert_eq!(number("nvidia-modeset"), (195, 254));
    assert_eq!(number("nvidia-uvm"), (510, 0));
    assert_eq!(number("nvidia-uvm-tools"), (510, 1));
    assert_eq!(number("nvidia-caps/nvidia-cap2"), (236, 2));
}
