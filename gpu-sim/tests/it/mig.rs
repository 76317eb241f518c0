//! The life of MIG instances through the C ABI.
#![expect(unsafe_code, reason = "calls the C ABI as C does")]

mod killed;
mod sequences;

use std::{collections::BTreeSet, ffi::c_uint, fs, path::Path, ptr::null_mut};

use gpu_sim::{Error, Node, NodeSpec};
use nvml_wrapper_sys::bindings::{
    nvmlComputeInstanceProfileInfo_v2_t, nvmlDeviceAttributes_t, nvmlGpuInstancePlacement_t,
    nvmlGpuInstanceProfileInfo_v2_t, nvmlGpuInstanceProfileInfo_v3_t, nvmlMemory_t,
};

use crate::{
    Simulated,
    driver::{
        ARGUMENT_VERSION_MISMATCH, Driver, GPU_IS_LOST, IN_USE, INSUFFICIENT_RESOURCES, INVALID_ARGUMENT, NOT_FOUND,
        NOT_SUPPORTED, call, read, version, zeroed,
    },
};

/// Paths beneath the capabilities folder and the device nodes that are not always there.
pub(crate) fn shown(node: &Node, minor: u32) -> (BTreeSet<String>, BTreeSet<String>) {
    fn walk(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).expect("the tree is there") {
            let entry = entry.expect("the tree is there");
            let path = format!("{prefix}{}", entry.file_name().to_str().expect("the tree is there"));
            if entry.path().is_dir() {
                walk(&entry.path(), &format!("{path}/"), found);
            } else {
                found.insert(path);
            }
        }
    }
    let mut files = BTreeSet::new();
    let capabilities = format!("proc/driver/nvidia/capabilities/gpu{minor}/mig");
    walk(&node.root().join(capabilities), "", &mut files);
    let nodes = fs::read_dir(node.root().join("dev/nvidia-caps")).expect("the tree is there");
    let mut names: BTreeSet<String> = nodes
        .map(|entry| {
            entry
                .expect("the tree is there")
                .file_name()
                .into_string()
                .expect("the tree is there")
        })
        .collect();
    assert!(names.remove("nvidia-cap1") && names.remove("nvidia-cap2"));
    (files, names)
}

#[test]
fn hopper_turns_the_mode_on_and_off_at_once() {
    let node = Simulated::new(&NodeSpec::new("h200").gpus(2));
    let driver = Driver::load(&node.node.library());
    let gpu = driver.gpu(0);
    assert_eq!(driver.set_mode(gpu, 2).0, INVALID_ARGUMENT);
    assert_eq!(driver.set_mode(gpu, 1), (0, 0));
    assert_eq!(driver.mode(gpu), (1, 1));
    assert_eq!(driver.mode(driver.gpu(1)), (0, 0));
    let instance = driver.create(gpu, 19, None).unwrap();
    assert_eq!(driver.set_mode(gpu, 0).0, IN_USE, "instances are there");
    assert_eq!(driver.mode(gpu), (1, 1));
    assert_eq!(call!(driver.lib, nvmlGpuInstanceDestroy, instance), 0);
    assert_eq!(driver.set_mode(gpu, 0), (0, 0));
    assert_eq!(driver.mode(gpu), (0, 0));
}

/// Every number of version 1 was read from a real H200, driver 580.159.04, MIG mode off; so were names and return codes.
#[test]
fn an_h200_offers_what_was_measured() {
    let node = Simulated::new(&NodeSpec::new("h200-vm"));
    let driver = Driver::load(&node.node.library());
    let gpu = driver.gpu(0);
    let offered: Vec<_> = (0..18)
        .map(|constant| {
            let info = driver.profile(gpu, constant)?;
            let engines = [
                info.copyEngineCount,
                info.decoderCount,
                info.encoderCount,
                info.jpegCount,
                info.ofaCount,
            ];
            Ok((
                info.id,
                info.sliceCount,
                info.instanceCount,
                info.multiprocessorCount,
                engines,
                info.memorySizeMB,
            ))
        })
        .collect();
    let mut expected = vec![Err(NOT_SUPPORTED); 17];
    expected.push(Err(INVALID_ARGUMENT));
    expected[0] = Ok((19, 1, 7, 16, [1, 1, 0, 1, 0], 16384));
    expected[1] = Ok((14, 2, 3, 32, [2, 2, 0, 2, 0], 33280));
    expected[2] = Ok((9, 3, 2, 60, [3, 3, 0, 3, 0], 71424));
    expected[3] = Ok((5, 4, 1, 64, [4, 4, 0, 4, 0], 71424));
    expected[4] = Ok((0, 7, 1, 132, [8, 7, 0, 7, 1], 143_360));
    expected[7] = Ok((20, 1, 1, 16, [1, 1, 0, 1, 1], 16384));
    expected[9] = Ok((15, 1, 4, 26, [1, 1, 0, 1, 0], 33280));
    assert_eq!(offered, expected);

    let mut info: nvmlGpuInstanceProfileInfo_v2_t = zeroed();
    let out = (&raw mut info).cast();
    let code = call!(driver.lib, nvmlDeviceGetGpuInstanceProfileInfoV, gpu, 7, out);
    assert_eq!(code, ARGUMENT_VERSION_MISMATCH);
    info.version = version(2, size_of::<nvmlGpuInstanceProfileInfo_v2_t>());
    let out = (&raw mut info).cast();
    assert_eq!(call!(driver.lib, nvmlDeviceGetGpuInstanceProfileInfoV, gpu, 7, out), 0);
    assert_eq!(
        (info.version, info.id, read(&info.name)),
        (0, 20, "MIG 1g.18gb+me".to_owned())
    );
    let mut info: nvmlGpuInstanceProfileInfo_v3_t = zeroed();
    info.version = version(3, size_of::<nvmlGpuInstanceProfileInfo_v3_t>());
    let out = (&raw mut info).cast();
    assert_eq!(call!(driver.lib, nvmlDeviceGetGpuInstanceProfileInfoV, gpu, 9, out), 0);
    assert_eq!((info.id, read(&info.name), info.capabilities), (15, String::new(), 0));

    let mut count = 0;
    let possible = |list, count| {
        call!(
            driver.lib,
            nvmlDeviceGetGpuInstancePossiblePlacements_v2,
            gpu,
            9,
            list,
            count
        )
    };
    assert_eq!(possible(null_mut(), &raw mut count), 0);
    assert_eq!(count, 2);
    let mut list: [nvmlGpuInstancePlacement_t; 2] = zeroed();
    assert_eq!(possible(list.as_mut_ptr(), &raw mut count), 0);
    assert_eq!(list.map(|place| (place.start, place.size)), [(0, 4), (4, 4)]);
}

#[test]
fn a_mig_device_lives_from_its_creation_to_its_destruction() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2).permute_pci(true));
    let minor = node.node.gpus()[0].minor;
    let driver = Driver::load(&node.node.library());
    let gpu = driver.gpu(0);
    assert_eq!(driver.create(gpu, 9, None), Err(NOT_SUPPORTED), "mode is off");
    driver.set_mode(gpu, 1);
    let instance = driver.create(gpu, 9, None).unwrap();
    let info = driver.info(instance).unwrap();
    assert_eq!((info.device, info.id, info.profileId), (gpu, 1, 9));
    assert_eq!(
        (info.placement.start, info.placement.size),
        (4, 4),
        "the upper half first"
    );
    assert!(driver.mig_devices(gpu).is_empty(), "a GPU instance alone is no device");

    let compute = driver.create_compute(instance, 0).unwrap();
    let device = driver.compute_info(compute).unwrap().device;
    assert_eq!(driver.mig_devices(gpu), [device]);
    assert_eq!(driver.name(device), "NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb");
    let uuid = driver.uuid(device);
    assert_eq!(driver.by_uuid(&uuid), Ok(device));
    assert_eq!(driver.by_uuid(&format!("MIG-{}/1/0", driver.uuid(gpu))), Ok(device));
    let id = |get: &dyn Fn(*mut c_uint) -> c_uint| {
        let mut id = 99;
        (get(&raw mut id), id)
    };
    assert_eq!(
        id(&|out| call!(driver.lib, nvmlDeviceGetGpuInstanceId, device, out)),
        (0, 1)
    );
    assert_eq!(
        id(&|out| call!(driver.lib, nvmlDeviceGetComputeInstanceId, device, out)),
        (0, 0)
    );
    assert_eq!(
        id(&|out| call!(driver.lib, nvmlDeviceIsMigDeviceHandle, device, out)),
        (0, 1)
    );
    assert_eq!(id(&|out| call!(driver.lib, nvmlDeviceGetIndex, device, out)), (0, 0));
    assert_eq!(
        id(&|out| call!(driver.lib, nvmlDeviceGetGpuInstanceId, gpu, out)).0,
        INVALID_ARGUMENT
    );
    assert_eq!(
        id(&|out| call!(driver.lib, nvmlDeviceGetPowerUsage, device, out)).0,
        NOT_SUPPORTED
    );
    let mut whole = null_mut();
    assert_eq!(
        call!(
            driver.lib,
            nvmlDeviceGetDeviceHandleFromMigDeviceHandle,
            device,
            &raw mut whole
        ),
        0
    );
    assert_eq!(whole, gpu);
    let mut attributes: nvmlDeviceAttributes_t = zeroed();
    assert_eq!(
        call!(driver.lib, nvmlDeviceGetAttributes_v2, device, &raw mut attributes),
        0
    );
    assert_eq!((attributes.multiprocessorCount, attributes.memorySizeMB), (16, 40960));
    assert_eq!(
        (attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount),
        (3, 1)
    );
    assert_eq!(
        (
            attributes.sharedCopyEngineCount,
            attributes.sharedDecoderCount,
            attributes.sharedJpegCount
        ),
        (3, 3, 3)
    );
    let mut memory: nvmlMemory_t = zeroed();
    assert_eq!(call!(driver.lib, nvmlDeviceGetMemoryInfo, device, &raw mut memory), 0);
    assert_eq!(memory.total, 40960 << 20);
    let mut profile: nvmlComputeInstanceProfileInfo_v2_t = zeroed();
    profile.version = version(2, size_of::<nvmlComputeInstanceProfileInfo_v2_t>());
    let out = &raw mut profile;
    assert_eq!(
        call!(
            driver.lib,
            nvmlGpuInstanceGetComputeInstanceProfileInfoV,
            instance,
            2,
            0,
            out
        ),
        0
    );
    assert_eq!(
        (profile.id, profile.instanceCount, read(&profile.name)),
        (2, 1, "MIG 3g.40gb".to_owned())
    );

    let base = 3 + 135 * minor + 9;
    let (files, nodes) = shown(&node.node, minor);
    assert_eq!(files, ["gi1/access", "gi1/ci0/access"].map(str::to_owned).into());
    assert_eq!(nodes, [base, base + 1].map(|minor| format!("nvidia-cap{minor}")).into());
    let access = node
        .node
        .root()
        .join(format!("proc/driver/nvidia/capabilities/gpu{minor}/mig/gi1/ci0/access"));
    let expected = format!(
        "DeviceFileMinor: {}\nDeviceFileMode: 292\nDeviceFileModify: 1\n",
        base + 1
    );
    assert_eq!(fs::read_to_string(access).unwrap(), expected);

    assert_eq!(
        call!(driver.lib, nvmlGpuInstanceDestroy, instance),
        IN_USE,
        "a compute instance is left"
    );
    assert_eq!(call!(driver.lib, nvmlComputeInstanceDestroy, compute), 0);
    assert_eq!(
        call!(driver.lib, nvmlComputeInstanceDestroy, compute),
        INVALID_ARGUMENT,
        "it is gone"
    );
    assert_eq!(driver.by_uuid(&uuid), Err(NOT_FOUND));
    assert_eq!(call!(driver.lib, nvmlGpuInstanceDestroy, instance), 0);
    assert_eq!(driver.info(instance).err(), Some(INVALID_ARGUMENT));
    assert_eq!(shown(&node.node, minor), (BTreeSet::new(), BTreeSet::new()));

    let again = driver.create(gpu, 9, Some((4, 4))).unwrap();
    let compute = driver.create_compute(again, 0).unwrap();
    let device = driver.compute_info(compute).unwrap().device;
    assert_eq!(driver.uuid(device), uuid, "the same place, the same UUID");
}

#[test]
fn without_a_place_the_driver_chooses_and_a_full_gpu_is_out_of_resources() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let driver = Driver::load(&node.node.library());
    let gpu = driver.gpu(0);
    driver.set_mode(gpu, 1);
    let remaining = |profile| {
        let mut count = 99;
        let out = &raw mut count;
        assert_eq!(
            call!(driver.lib, nvmlDeviceGetGpuInstanceRemainingCapacity, gpu, profile, out),
            0
        );
        count
    };
    assert_eq!((remaining(19), remaining(20), remaining(0)), (7, 1, 1));
    let mut starts = Vec::new();
    while let Ok(instance) = driver.create(gpu, 19, None) {
        starts.push(driver.info(instance).unwrap().placement.start);
    }
    assert_eq!(starts, [6, 4, 5, 0, 1, 2, 3]);
    assert_eq!((remaining(19), remaining(20), remaining(0)), (0, 0, 0));
    assert_eq!(driver.create(gpu, 19, None), Err(INSUFFICIENT_RESOURCES));
    assert_eq!(driver.create(gpu, 9, Some((0, 4))), Err(INSUFFICIENT_RESOURCES));
    assert_eq!(
        driver.create(gpu, 9, Some((2, 4))),
        Err(INVALID_ARGUMENT),
        "no such place"
    );
    assert_eq!(
        driver.create(gpu, 9, Some((4, 3))),
        Err(INVALID_ARGUMENT),
        "no such size"
    );
    assert_eq!(driver.create(gpu, 77, None), Err(INVALID_ARGUMENT), "no such profile");
}

#[test]
fn a_lost_gpu_loses_its_instances_from_sight_and_a_reboot_loses_them() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let driver = Driver::load(&node.node.library());
    let gpu = driver.gpu(0);
    driver.set_mode(gpu, 1);
    let made = node.node.create_mig(0, "1g.10gb", Some(3)).unwrap();
    assert_eq!((made.id, made.start, made.size), (14, 3, 1));
    let device = driver.by_uuid(&made.devices[0].2).unwrap();
    node.node.lose(0).unwrap();
    let mut id = 0;
    assert_eq!(
        call!(driver.lib, nvmlDeviceGetGpuInstanceId, device, &raw mut id),
        GPU_IS_LOST
    );
    assert_eq!(driver.by_uuid(&made.devices[0].2), Err(GPU_IS_LOST));
    node.node.reboot().unwrap();
    assert_eq!(
        driver.mode(gpu),
        (0, 0),
        "later than Ampere, the mode does not outlast it"
    );
    assert_eq!(node.node.mig(0).unwrap(), []);
    assert_eq!(shown(&node.node, 0), (BTreeSet::new(), BTreeSet::new()));
}

#[test]
fn what_the_driver_refuses_is_told_with_its_reason() {
    #[track_caller]
    fn check<T: std::fmt::Debug>(done: Result<T, Error>, expected: &str) {
        assert_eq!(done.unwrap_err().to_string(), expected);
    }
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let node = &node.node;
    check(
        node.create_mig(0, "3g.40gb", None),
        "cannot create 3g.40gb on GPU 0: Not Supported",
    );
    assert!(node.set_mig_mode(0, true).unwrap());
    node.create_mig(0, "3g.40gb", Some(0)).unwrap();
    check(
        node.create_mig(0, "4g.40gb", None),
        "cannot create 4g.40gb on GPU 0: Insufficient Resources",
    );
    check(
        node.destroy_mig(0, 1),
        "cannot destroy GPU instance 1 of GPU 0: Not Found",
    );
    check(
        node.set_mig_mode(0, false),
        "cannot turn MIG mode of GPU 0 off: In use by another client",
    );
    check(
        node.create_mig(0, "1g.5gb", None),
        "H100-80GB-HBM3 has no MIG profile `1g.5gb`: choose one of 1g.10gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb, \
         1g.10gb+me, 1g.20gb",
    );
}

/// Where a writer was killed after the state and before the files, the next process mends them.
#[test]
fn a_tree_that_lags_is_mended_by_the_next_process() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    node.node.set_mig_mode(0, true).unwrap();
    node.node.create_mig(0, "1g.10gb", Some(0)).unwrap();
    let shown_before = shown(&node.node, 0);
    let capabilities = node.node.root().join("proc/driver/nvidia/capabilities/gpu0/mig/gi11");
    let break_it = || {
        fs::remove_dir_all(&capabilities).unwrap();
        fs::write(node.node.root().join("dev/nvidia-caps/nvidia-cap999"), "").unwrap();
        fs::write(node.node.folder().join("state/written"), "1").unwrap();
    };
    break_it();
    let _driver = Driver::load(&node.node.library());
    assert_eq!(shown(&node.node, 0), shown_before);
    break_it();
    Node::open(node.node.folder()).unwrap();
    assert_eq!(shown(&node.node, 0), shown_before);
}
