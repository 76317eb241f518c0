//! Drivers of several generations: what each lacks, and changing from one to another.
#![expect(unsafe_code, reason = "asks the loader as C does")]

use std::{collections::BTreeMap, ffi::CString, fs, path::Path};

use gpu_sim::{Node, NodeSpec};
use nvml_wrapper::error::NvmlError;

use crate::{Simulated, nvml};

/// Which functions `dlsym` finds in a library.
fn found(library: &Path) -> impl Fn(&str) -> bool + use<> {
    let path = CString::new(library.as_os_str().as_encoded_bytes()).expect("a path has no zero");
    // SAFETY: the path ends in a zero; the library has no initialiser.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null(), "{} loads", library.display());
    move |name| {
        let name = CString::new(name).expect("a name has no zero");
        // SAFETY: the handle is open and the name ends in a zero.
        !unsafe { libc::dlsym(handle, name.as_ptr()) }.is_null()
    }
}

#[test]
fn a_library_lacks_what_came_after_its_driver() {
    let since: BTreeMap<&str, u32> = include_str!("../../nvml.since")
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, since)| (name, since.parse().unwrap()))
        .collect();
    for branch in [470, 535, 550, 580, 610_u32] {
        let node = Simulated::new(&NodeSpec::new("h100").gpus(1).driver(branch.to_string()));
        let found = found(&node.node.library());
        for name in include_str!("../../nvml.symbols").lines() {
            let expected = since.get(name).is_none_or(|since| *since <= branch);
            assert_eq!(found(name), expected, "{name} in {branch}");
        }
        let nvml = node.nvml();
        let gpu = nvml.device_by_index(0).unwrap();
        assert!(nvml.sys_driver_version().unwrap().starts_with(&branch.to_string()));
        assert!(gpu.name().is_ok());
        assert_eq!(gpu.memory_info().is_ok(), branch >= 510);
        assert!(!gpu.mig_mode().unwrap().current.eq(&1));
    }
}

/// Spot checks against what is known of real drivers: version 2 of the memory call came with 510, the addressing mode with
/// 580.
#[test]
fn generations_are_told_apart_by_what_is_known_of_them() {
    let has = |driver: &str, name: &str| {
        let node = Simulated::new(&NodeSpec::new("h200").gpus(1).driver(driver));
        found(&node.node.library())(name)
    };
    assert!(has("470", "nvmlDeviceGetMemoryInfo") && !has("470", "nvmlDeviceGetMemoryInfo_v2"));
    assert!(!has("550", "nvmlDeviceGetAddressingMode") && has("580", "nvmlDeviceGetAddressingMode"));
    assert!(!has("580", "nvmlSystemGetCPER_v1") && has("610", "nvmlSystemGetCPER_v1"));
}

#[test]
fn who_has_the_old_library_is_told_and_the_new_one_answers() {
    let mut node = Simulated::new(&NodeSpec::new("h100").gpus(1).driver("550"));
    let old = node.nvml();
    assert!(old.device_by_index(0).is_ok());
    node.node.load_driver("470").unwrap();
    assert!(matches!(old.device_count(), Err(NvmlError::LibRmVersionMismatch)));
    let library = node.node.library();
    let new = library.with_file_name("again.so");
    fs::copy(&library, &new).unwrap(); // the loader would take the same name for the same library
    let new = nvml(&new).unwrap();
    assert_eq!(new.sys_driver_version().unwrap(), "470.256.02");
    assert!(matches!(
        new.device_by_index(0).unwrap().memory_info(),
        Err(NvmlError::FailedToLoadSymbol(_))
    ));
    let root = node.node.root();
    let version = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    assert!(version("proc/driver/nvidia/version").contains("470.256.02"));
    assert_eq!(version("sys/module/nvidia/version"), "470.256.02\n");
    let folder = root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
    let left: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("550."))
        .collect();
    assert_eq!(left, [] as [String; 0]);
    assert_eq!(
        folder.join("libcuda.so.1").canonicalize().unwrap(),
        folder.canonicalize().unwrap().join("libcuda.so.470.256.02")
    );

    node.node.load_driver("550").unwrap();
    assert_eq!(Node::open(node.node.folder()).unwrap().file().driver, "550.163.01");
    assert!(old.device_count().is_ok(), "its driver is back");
    assert!(node.node.load_driver("1").is_err());
}

#[test]
fn a_library_of_another_driver_than_the_kernels_does_not_initialise() {
    let mut node = Simulated::new(&NodeSpec::new("h100").gpus(1).driver("550"));
    node.node.load_kernel_driver("580").unwrap();
    assert!(matches!(
        nvml(&node.node.library()),
        Err(NvmlError::LibRmVersionMismatch)
    ));
    node.node.load_driver("550").unwrap();
    assert!(nvml(&node.node.library()).is_ok());
}

#[test]
fn without_libcuda_only_the_first_version_of_the_call_knows_cudas() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let nvml = node.nvml();
    assert_eq!(nvml.sys_cuda_driver_version().unwrap(), 12040);
    let library = format!("usr/lib/{}-linux-gnu/libcuda.so.1", std::env::consts::ARCH);
    fs::remove_file(node.node.root().join(library)).unwrap();
    assert!(matches!(
        nvml.sys_cuda_driver_version(),
        Err(NvmlError::LibraryNotFound)
    ));
    let mut version = 0;
    // SAFETY: the version is there until the call returns.
    let code = unsafe { nvml.lib().nvmlSystemGetCudaDriverVersion(&raw mut version) };
    assert_eq!((code, version), (0, 12040));
}
