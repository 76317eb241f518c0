//! Return codes at the edges of the C ABI. Unless marked, each was measured on an H200 with driver 580.159.04.
#![expect(unsafe_code, reason = "calls the C ABI as C does")]

use std::{
    ffi::{CStr, c_uint},
    ptr::{null, null_mut},
};

use gpu_sim::NodeSpec;
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlDevice_t, nvmlEventData_t, nvmlGpuFabricInfo_t, nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t,
    nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t,
};

use crate::Simulated;

const UNINITIALIZED: c_uint = 1;
const INVALID_ARGUMENT: c_uint = 2;
const NOT_SUPPORTED: c_uint = 3;
const NOT_FOUND: c_uint = 6;
const INSUFFICIENT_SIZE: c_uint = 7;
const TIMEOUT: c_uint = 10;
const FUNCTION_NOT_FOUND: c_uint = 13;
const GPU_IS_LOST: c_uint = 15;
const ARGUMENT_VERSION_MISMATCH: c_uint = 25;

/// Calls a function of the library.
macro_rules! call {
    ($lib:expr, $name:ident $(, $argument:expr)*) => {{
        let lib: &NvmlLib = &$lib;
        // SAFETY: the arguments are of the C function's types, each pointer is null or points to a value that is there
        // until the statement ends, and every length is that of its buffer or less.
        unsafe { lib.$name($($argument),*) }
    }};
}

fn load(node: &Simulated) -> NvmlLib {
    // SAFETY: the library has no initialiser and was built with this test.
    unsafe { NvmlLib::new(node.node.library()) }.expect("the library loads")
}

fn initialised(node: &Simulated) -> (NvmlLib, nvmlDevice_t) {
    let lib = load(node);
    assert_eq!(call!(lib, nvmlInit_v2), 0);
    let device = by_index(&lib, 0);
    (lib, device)
}

fn by_index(lib: &NvmlLib, index: c_uint) -> nvmlDevice_t {
    let mut device = null_mut();
    assert_eq!(call!(lib, nvmlDeviceGetHandleByIndex_v2, index, &raw mut device), 0);
    device
}

/// The version that a structure of that size carries.
const fn version(version: c_uint, size: c_uint) -> c_uint {
    size + (version << 24)
}

#[test]
fn initialisations_are_counted() {
    let node = Simulated::new(&NodeSpec::new("h200-vm"));
    let lib = load(&node);
    let mut count = 0;
    assert_eq!(call!(lib, nvmlDeviceGetCount_v2, &raw mut count), UNINITIALIZED);
    assert_eq!(call!(lib, nvmlShutdown), UNINITIALIZED);
    for _ in 0..2 {
        assert_eq!(call!(lib, nvmlInit_v2), 0);
    }
    assert_eq!(call!(lib, nvmlInitWithFlags, 64), 0);
    for _ in 0..3 {
        assert_eq!(call!(lib, nvmlDeviceGetCount_v2, &raw mut count), 0);
        assert_eq!(call!(lib, nvmlShutdown), 0);
    }
    assert_eq!(call!(lib, nvmlShutdown), UNINITIALIZED);
    assert_eq!(call!(lib, nvmlDeviceGetCount_v2, &raw mut count), UNINITIALIZED);
    // A function that is not modelled also asks for initialisation first.
    assert_eq!(
        call!(lib, nvmlSystemGetTopologyGpuSet, 0, &raw mut count, null_mut()),
        UNINITIALIZED
    );
}

#[test]
fn a_forked_process_has_to_initialise_itself() {
    let node = Simulated::new(&NodeSpec::new("h200-vm"));
    let (lib, _) = initialised(&node);
    let mut count = 0;
    // SAFETY: the child calls only the library, whose locks no other thread of this process uses, and `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let answer = call!(lib, nvmlDeviceGetCount_v2, &raw mut count) + 10 * call!(lib, nvmlInit_v2);
        // SAFETY: it ends this process and nothing else.
        unsafe { libc::_exit(answer.cast_signed()) };
    }
    let mut status = 0;
    // SAFETY: the status is there until the call returns.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), UNINITIALIZED.cast_signed());
    assert_eq!(call!(lib, nvmlDeviceGetCount_v2, &raw mut count), 0);
}

#[test]
fn error_texts_are_nvmls() {
    let node = Simulated::new(&NodeSpec::new("h200-vm"));
    let lib = load(&node);
    for (code, expected) in [
        (0, c"Success"),
        (9, c"Driver Not Loaded"),
        (15, c"GPU is lost"),
        (18, c"Driver/library version mismatch"),
        (31, c"Unknown Error"),
        (999, c"Unknown Error"),
    ] {
        let text = call!(lib, nvmlErrorString, code);
        // SAFETY: the library answers text of its own that ends in a zero.
        assert_eq!(unsafe { CStr::from_ptr(text) }, expected);
    }
}

#[test]
fn a_buffer_must_hold_the_text_and_a_zero() {
    let node = Simulated::new(&NodeSpec::new("h200-vm"));
    let (lib, device) = initialised(&node);
    let mut buffer = [1; 96];
    let text = buffer.as_mut_ptr();
    for (length, expected) in [(0, INSUFFICIENT_SIZE), (10, INSUFFICIENT_SIZE), (11, 0), (80, 0)] {
        assert_eq!(
            call!(lib, nvmlSystemGetDriverVersion, text, length),
            expected,
            "{length}"
        );
    }
    for (length, expected) in [(40, INSUFFICIENT_SIZE), (41, 0), (96, 0)] {
        assert_eq!(
            call!(lib, nvmlDeviceGetUUID, device, text, length),
            expected,
            "{length}"
        );
    }
    assert_eq!((buffer[40], buffer[41]), (0, 1), "nothing behind the zero is written");
    assert_eq!(call!(lib, nvmlDeviceGetName, device, null_mut(), 96), INVALID_ARGUMENT);
}

#[test]
fn a_handle_that_was_not_handed_out_is_an_invalid_argument() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let (lib, device) = initialised(&node);
    let (mut minor, mut absent): (c_uint, nvmlDevice_t) = (0, null_mut());
    let forged = [
        null_mut(),
        device.wrapping_byte_add(1),
        by_index(&lib, 1).wrapping_byte_add(16),
        (&raw mut minor).cast(),
    ];
    for handle in forged {
        assert_eq!(
            call!(lib, nvmlDeviceGetMinorNumber, handle, &raw mut minor),
            INVALID_ARGUMENT,
            "{handle:?}"
        );
        assert_eq!(
            call!(lib, nvmlDeviceGetFanSpeed, handle, &raw mut minor),
            INVALID_ARGUMENT,
            "{handle:?}"
        );
    }
    assert_eq!(
        call!(lib, nvmlDeviceGetMinorNumber, device, null_mut()),
        INVALID_ARGUMENT
    );
    assert_eq!(
        call!(lib, nvmlDeviceGetHandleByIndex_v2, 2, &raw mut absent),
        INVALID_ARGUMENT
    );
    assert_eq!(
        call!(lib, nvmlDeviceGetHandleByIndex_v2, 0, null_mut()),
        INVALID_ARGUMENT
    );
}

#[test]
fn a_gpu_keeps_its_handle_and_two_gpus_have_two() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let (lib, device) = initialised(&node);
    assert_eq!(by_index(&lib, 0), device);
    assert_ne!(by_index(&lib, 1), device);
    assert_eq!(call!(lib, nvmlShutdown), 0);
    assert_eq!(initialised(&node).1, device);
}

#[test]
fn a_device_is_found_by_uuid_and_address_in_their_forms() {
    let node = Simulated::new(&NodeSpec::new("h200-vm"));
    let (lib, device) = initialised(&node);
    let mut found = null_mut();
    let uuid = node.node.gpus()[0].uuid.clone();
    for (text, expected) in [
        (uuid.as_str(), 0),
        (uuid.trim_start_matches("GPU-"), 0),
        (&uuid.to_lowercase(), NOT_FOUND),
        ("GPU-absent", NOT_FOUND),
    ] {
        let text = std::ffi::CString::new(text).unwrap();
        assert_eq!(
            call!(lib, nvmlDeviceGetHandleByUUID, text.as_ptr(), &raw mut found),
            expected,
            "{text:?}"
        );
    }
    for (text, expected) in [
        (c"0000:00:06.0", 0),
        (c"00000000:00:06.0", 0),
        (c"00:06.0", 0),
        (c"0000:00:06", 0),
        (c"0000:00:07.0", NOT_FOUND),
        (c"bad", INVALID_ARGUMENT),
        (c"0000:00:06.1", INVALID_ARGUMENT),
    ] {
        assert_eq!(
            call!(lib, nvmlDeviceGetHandleByPciBusId_v2, text.as_ptr(), &raw mut found),
            expected,
            "{text:?}"
        );
    }
    assert_eq!(found, device);
    assert_eq!(
        call!(lib, nvmlDeviceGetHandleByUUID, null(), &raw mut found),
        INVALID_ARGUMENT
    );
}

#[test]
fn structures_of_another_version_are_refused() {
    let node = Simulated::new(&NodeSpec::new("h200-vm"));
    let (lib, device) = initialised(&node);
    let mut memory = nvmlMemory_v2_t {
        version: 0,
        total: 0,
        reserved: 0,
        free: 0,
        used: 0,
    };
    for (version, expected) in [
        (version(2, 40), 0),
        (version(1, 40), FUNCTION_NOT_FOUND),
        (version(2, 24), FUNCTION_NOT_FOUND),
    ] {
        memory.version = version;
        assert_eq!(
            call!(lib, nvmlDeviceGetMemoryInfo_v2, device, &raw mut memory),
            expected,
            "{version:#x}"
        );
    }
    let mut v1 = nvmlMemory_t {
        total: 0,
        free: 0,
        used: 0,
    };
    assert_eq!(call!(lib, nvmlDeviceGetMemoryInfo, device, &raw mut v1), 0);
    assert_eq!(
        (v1.total, v1.free, v1.used),
        (150_754_820_096, 150_109_880_320, 644_939_776)
    );

    let mut fabric = nvmlGpuFabricInfo_v3_t {
        version: version(3, 44),
        clusterUuid: [0; 16],
        status: 7,
        cliqueId: 7,
        state: 7,
        healthMask: 7,
        healthSummary: 7,
    };
    assert_eq!(
        call!(lib, nvmlDeviceGetGpuFabricInfoV, device, &raw mut fabric),
        ARGUMENT_VERSION_MISMATCH
    );
    fabric.version = version(3, 40);
    assert_eq!(call!(lib, nvmlDeviceGetGpuFabricInfoV, device, &raw mut fabric), 0);
    assert_eq!(
        (fabric.status, fabric.cliqueId, fabric.state, fabric.healthMask),
        (0, 0, 0, 0)
    );
    assert_eq!(
        call!(lib, nvmlDeviceGetGpuFabricInfoV, device, null_mut()),
        INVALID_ARGUMENT
    );
}

/// The fabric is that of the recorded profile, not a measured one.
#[test]
fn every_version_of_the_fabric_tells_the_same() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let (lib, device) = initialised(&node);
    let mut v1 = nvmlGpuFabricInfo_t {
        clusterUuid: [7; 16],
        status: 7,
        cliqueId: 7,
        state: 7,
    };
    assert_eq!(call!(lib, nvmlDeviceGetGpuFabricInfo, device, &raw mut v1), 0);
    let mut v2 = nvmlGpuFabricInfo_v2_t {
        version: version(2, 36),
        clusterUuid: [7; 16],
        status: 7,
        cliqueId: 7,
        state: 7,
        healthMask: 7,
    };
    assert_eq!(call!(lib, nvmlDeviceGetGpuFabricInfoV, device, (&raw mut v2).cast()), 0);
    let mut cluster = [0; 16];
    cluster[15] = 1;
    assert_eq!((v1.clusterUuid, v1.status, v1.cliqueId, v1.state), (cluster, 0, 0, 3));
    assert_eq!((v2.clusterUuid, v2.status, v2.cliqueId, v2.state), (cluster, 0, 0, 3));
}

#[test]
fn without_mig_there_are_no_instances() {
    let node = Simulated::new(&NodeSpec::new("h200-vm"));
    let (lib, device) = initialised(&node);
    let (mut number, mut other, mut instance) = (7, null_mut(), null_mut());
    assert_eq!(call!(lib, nvmlDeviceIsMigDeviceHandle, device, &raw mut number), 0);
    assert_eq!(number, 0);
    assert_eq!(
        call!(lib, nvmlDeviceGetMigDeviceHandleByIndex, device, 0, &raw mut other),
        NOT_FOUND
    );
    assert_eq!(
        call!(
            lib,
            nvmlDeviceGetDeviceHandleFromMigDeviceHandle,
            device,
            &raw mut other
        ),
        INVALID_ARGUMENT
    );
    assert_eq!(
        call!(lib, nvmlDeviceGetGpuInstanceId, device, &raw mut number),
        INVALID_ARGUMENT
    );
    assert_eq!(
        call!(lib, nvmlDeviceGetGpuInstanceById, device, 0, &raw mut instance),
        NOT_FOUND
    );
}

#[test]
fn what_a_board_or_node_does_not_have_is_not_supported() {
    let node = Simulated::new(&NodeSpec::new("h200-vm"));
    let (lib, device) = initialised(&node);
    let mut number = 7;
    assert_eq!(
        call!(
            lib,
            nvmlDeviceGetTopologyCommonAncestor,
            device,
            device,
            &raw mut number
        ),
        NOT_SUPPORTED
    );
    for link in [0, 18, 40] {
        assert_eq!(
            call!(lib, nvmlDeviceGetNvLinkState, device, link, &raw mut number),
            NOT_SUPPORTED
        );
    }
    assert_eq!(
        call!(lib, nvmlDeviceGetTemperature, device, 1, &raw mut number),
        INVALID_ARGUMENT
    );
    assert_eq!(
        call!(lib, nvmlDeviceGetClockInfo, device, 9, &raw mut number),
        NOT_SUPPORTED
    );
    assert_eq!(number, 7, "a refused call writes nothing");
}

#[test]
fn event_sets_refuse_what_does_not_fit() {
    let node = Simulated::new(&NodeSpec::new("h200-vm"));
    let (lib, device) = initialised(&node);
    let mut set = null_mut();
    assert_eq!(call!(lib, nvmlEventSetCreate, &raw mut set), 0);
    for (kinds, expected) in [
        (0, 0),
        (8, 0),
        (65439, 0),
        (1 << 24, NOT_SUPPORTED),
        (1 << 40, NOT_SUPPORTED),
    ] {
        assert_eq!(
            call!(lib, nvmlDeviceRegisterEvents, device, kinds, set),
            expected,
            "{kinds:#x}"
        );
    }
    let mut data = nvmlEventData_t {
        device: null_mut(),
        eventType: 0,
        eventData: 0,
        gpuInstanceId: 0,
        computeInstanceId: 0,
    };
    assert_eq!(call!(lib, nvmlEventSetWait_v2, set, &raw mut data, 0), TIMEOUT);
    assert_eq!(call!(lib, nvmlEventSetWait_v2, set, null_mut(), 1), INVALID_ARGUMENT);

    node.node.inject_xid(0, 79).unwrap();
    assert_eq!(call!(lib, nvmlEventSetWait_v2, set, &raw mut data, 0), 0);
    assert_eq!((data.device, data.eventType, data.eventData), (device, 8, 79));
    assert_eq!((data.gpuInstanceId, data.computeInstanceId), (u32::MAX, u32::MAX));

    assert_eq!(call!(lib, nvmlEventSetFree, set), 0);
    assert_eq!(call!(lib, nvmlEventSetFree, set), INVALID_ARGUMENT); // not measured
    assert_eq!(call!(lib, nvmlEventSetWait_v2, set, &raw mut data, 0), INVALID_ARGUMENT); // not measured
}

/// Not measured: that a lost GPU answers nothing else is what NVML documents.
#[test]
fn a_lost_gpu_has_no_other_answer() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let (lib, device) = initialised(&node);
    node.node.lose(0).unwrap();
    let (mut number, mut other) = (0, null_mut());
    assert_eq!(
        call!(lib, nvmlDeviceGetHandleByIndex_v2, 0, &raw mut other),
        GPU_IS_LOST
    );
    assert_eq!(
        call!(lib, nvmlDeviceGetMinorNumber, device, &raw mut number),
        GPU_IS_LOST
    );
    assert_eq!(call!(lib, nvmlDeviceGetFanSpeed, device, &raw mut number), GPU_IS_LOST);
    assert_eq!(call!(lib, nvmlDeviceGetUUID, device, null_mut(), 0), GPU_IS_LOST);
    assert_eq!(
        call!(
            lib,
            nvmlDeviceGetTopologyCommonAncestor,
            by_index(&lib, 1),
            device,
            &raw mut number
        ),
        GPU_IS_LOST
    );
}

/// A program that was built against old headers has room for no more than these.
#[test]
fn old_versions_of_the_pci_structure_are_not_overrun() {
    let node = Simulated::new(&NodeSpec::new("h200-vm"));
    let (lib, device) = initialised(&node);
    // SAFETY: all zeros are a value of this structure of numbers.
    let mut info: nvmlPciInfo_t = unsafe { std::mem::zeroed() };
    info.pciSubSystemId = 7;
    info.busId = [7; 32];
    assert_eq!(call!(lib, nvmlDeviceGetPciInfo, device, &raw mut info), 0);
    assert_eq!(
        (info.device, info.pciDeviceId, info.pciSubSystemId),
        (6, 0x2335_10de, 7)
    );
    assert_eq!(call!(lib, nvmlDeviceGetPciInfo_v2, device, &raw mut info), 0);
    assert_eq!((info.pciSubSystemId, info.busId), (0x18bf_10de, [7; 32]));
    assert_eq!(call!(lib, nvmlDeviceGetPciInfo_v3, device, &raw mut info), 0);
    assert_ne!(info.busId, [7; 32]);
}
