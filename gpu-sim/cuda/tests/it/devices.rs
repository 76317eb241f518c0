use std::{fs, path::Path, process::Command};

use gpu_sim::NodeSpec;
use nvml_wrapper::enum_wrappers::device::ComputeMode;

use crate::{Simulated, libraries, result};

fn line(node: &Simulated, ordinal: usize, gpu: usize) -> String {
    let uuid = node.node.gpus()[gpu].uuid.trim_start_matches("GPU-");
    format!("{ordinal}: NVIDIA H200, {uuid}, 143155 MiB, 9.0, 132 SM\n")
}

#[test]
fn gpus_are_those_of_nvml_with_what_cuda_says_of_them() {
    let node = Simulated::new(&NodeSpec::new("h200").gpus(2).driver("580"));
    let expected = format!("CUDA 13.0\n{}{}", line(&node, 0, 0), line(&node, 1, 1));
    assert_eq!(node.devices(), Ok(expected));
    assert_eq!(
        node.visible(&format!("{},0", node.node.gpus()[1].uuid)),
        Ok(format!("CUDA 13.0\n{}{}", line(&node, 0, 1), line(&node, 1, 0)))
    );
    assert_eq!(node.visible(""), Err("cuInit: CUDA_ERROR_NO_DEVICE".to_owned()));
}

#[test]
fn a_lost_gpu_is_gone_and_the_others_stay() {
    let node = Simulated::new(&NodeSpec::new("h200").gpus(2));
    node.node.lose(0).unwrap();
    let seen = node.devices().unwrap();
    assert!(
        seen.ends_with(&line(&node, 0, 1)) && seen.lines().count() == 2,
        "{seen}"
    );
    node.node.lose(1).unwrap();
    assert_eq!(node.devices(), Err("cuInit: CUDA_ERROR_NO_DEVICE".to_owned()));
}

#[test]
fn a_driver_that_differs_from_the_library_is_told() {
    let mut node = Simulated::new(&NodeSpec::new("h200").gpus(1).driver("570"));
    node.node.load_kernel_driver("580").unwrap();
    assert_eq!(
        node.devices(),
        Err("cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH".to_owned())
    );
    node.node.load_driver("580").unwrap();
    assert_eq!(node.devices().unwrap().lines().next(), Some("CUDA 13.0"));
}

#[test]
fn without_a_driver_there_is_no_device() {
    let node = Simulated::new(&NodeSpec::new("h200").gpus(1));
    node.node.set_init_error(Some(9)).unwrap();
    assert_eq!(node.devices(), Err("cuInit: CUDA_ERROR_NO_DEVICE".to_owned()));
}

#[test]
fn of_mig_devices_one_is_seen() {
    let node = Simulated::new(&NodeSpec::new("h200").gpus(1));
    node.node.set_mig_mode(0, true).unwrap();
    assert_eq!(node.devices(), Err("cuInit: CUDA_ERROR_NO_DEVICE".to_owned()));
    let made = [
        node.node.create_mig(0, "3g.71gb", None).unwrap(),
        node.node.create_mig(0, "1g.18gb", None).unwrap(),
    ];
    let uuid = |at: usize| made[at].devices[0].2.clone();
    let of = |seen: Result<String, String>| {
        let seen = seen.unwrap();
        assert_eq!(seen.lines().count(), 2, "{seen}");
        seen.lines().nth(1).unwrap().to_owned()
    };
    let second = of(node.visible(&uuid(1)));
    let expected = format!("0: NVIDIA H200 MIG 1g.18gb, {}, ", uuid(1).trim_start_matches("MIG-"));
    assert!(
        second.starts_with(&expected) && second.ends_with(", 9.0, 16 SM"),
        "{second}"
    );
    let first = of(node.devices());
    assert!(
        first.contains(" MIG 3g.71gb, ") && first.ends_with(", 48 SM"),
        "{first}"
    );
}

#[test]
fn compute_modes_bind() {
    let node = Simulated::new(&NodeSpec::new("h200").gpus(1));
    let nvml = nvml_wrapper::Nvml::builder()
        .lib_path(node.node.library().as_os_str())
        .init()
        .unwrap();
    let set = |mode| nvml.device_by_index(0).unwrap().set_compute_mode(mode).unwrap();
    let context = || {
        result(
            &node
                .program()
                .arg("--context")
                .stdin(std::process::Stdio::null())
                .output()
                .unwrap(),
        )
    };
    assert!(context().is_ok());
    set(ComputeMode::Prohibited);
    let unavailable = Err("cuCtxCreate_v2: CUDA_ERROR_DEVICE_UNAVAILABLE".to_owned());
    assert_eq!(context(), unavailable);
    set(ComputeMode::ExclusiveProcess);
    assert!(context().is_ok());
    node.node.load(0, gpu_sim::Load::default()).unwrap();
    assert_eq!(context(), unavailable, "another process is there");
}

/// A root folder with libc, the loader, and what a container gets of the driver.
fn container(node: &Simulated) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a temporary folder can be made");
    let copy = |from: &Path, to: &str| {
        let to = root.path().join(to);
        fs::create_dir_all(to.parent().expect("a file lies in a folder")).expect("a folder can be made");
        // By another process, so that none that this one starts can hold the copy open.
        let status = Command::new("cp").arg("-L").arg(from).arg(to).status();
        assert!(status.expect("cp runs").success());
    };
    // This test itself runs with both; the loader's name is fixed by the architecture.
    let maps = fs::read_to_string("/proc/self/maps").expect("a process sees its maps");
    let mapped = |part: &str| {
        let line = maps.lines().find(|line| line.contains(part)).expect("libc is mapped");
        Path::new(&line[line.find('/').expect("libc has a path")..]).to_owned()
    };
    let loader = if cfg!(target_arch = "aarch64") {
        "lib/ld-linux-aarch64.so.1"
    } else {
        "lib64/ld-linux-x86-64.so.2"
    };
    copy(&mapped("/ld-linux"), loader);
    copy(&mapped("/libc.so.6"), "usr/lib/libc.so.6");
    for name in ["libnvidia-ml.so.1", "libcuda.so.1"] {
        copy(&libraries(&node.node.root()).join(name), &format!("usr/lib/{name}"));
    }
    copy(Path::new(env!("CARGO_BIN_EXE_cuda-devices")), "usr/bin/cuda-devices");
    fs::create_dir(root.path().join("dev")).expect("a folder can be made");
    root
}

#[test]
#[ignore = "needs root: chroot and mknod"]
fn a_container_sees_the_devices_whose_nodes_it_has() {
    let node = Simulated::new(&NodeSpec::new("h200").gpus(3).driver("580"));
    let container = container(&node);
    let devices = || {
        let output = Command::new("chroot")
            .arg(container.path())
            .arg("/usr/bin/cuda-devices")
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LD_LIBRARY_PATH", "/usr/lib")
            .env("NVIDIA_VISIBLE_DEVICES", "all")
            .output();
        result(&output.expect("chroot runs"))
    };
    let make = |name: &str, minor: u32| {
        let path = container.path().join("dev").join(name);
        let status = Command::new("mknod")
            .arg(path)
            .args(["c", "195", &minor.to_string()])
            .status();
        assert!(status.expect("mknod runs").success(), "root may make device nodes");
    };
    let none = Err("cuInit: CUDA_ERROR_NO_DEVICE".to_owned());
    assert_eq!(devices(), none);
    make("nvidiactl", 255);
    assert_eq!(devices(), none);
    make("nvidia1", 1);
    assert_eq!(devices(), Ok(format!("CUDA 13.0\n{}", line(&node, 0, 1))));
}
