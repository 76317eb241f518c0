//! Drivers that answer nonsense, hang from the start, or go away.

use std::{
    env, fs,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use gpu_core::{
    Error, Inventory, ProblemKind,
    nvml::{Library, LibrarySearch},
};
use gpu_sim::NodeSpec;

use crate::{
    Simulated, open,
    shim::{library, shimmed},
};

fn inventory(simulated: &Simulated, functions: &str) -> Inventory {
    let inventory = shimmed(simulated, functions).inventory(&simulated.node.root());
    let inventory = inventory.expect("the node is read");
    // Whatever it says, it is written and read back as the same.
    let text = serde_json::to_string(&inventory).expect("it is written");
    assert_eq!(
        serde_json::from_str::<Inventory>(&text).expect("it is read back"),
        inventory
    );
    inventory
}

fn h100() -> Simulated {
    Simulated::new(&NodeSpec::new("h100").gpus(2))
}

#[test]
fn texts_without_an_end_are_read_to_the_end_of_their_buffer() {
    let functions = r"
        static int fill(char *text, unsigned length) { memset(text, 'A', length); return 0; }
        int nvmlDeviceGetName(Handle device, char *text, unsigned length) { return fill(text, length); }
        int nvmlDeviceGetSerial(Handle device, char *text, unsigned length) { return fill(text, length); }
        int nvmlDeviceGetBoardPartNumber(Handle device, char *text, unsigned length) { return fill(text, length); }
        int nvmlDeviceGetVbiosVersion(Handle device, char *text, unsigned length) { memset(text, 0xff, length); return 0; }
        int nvmlSystemGetNVMLVersion(char *text, unsigned length) { return fill(text, length); }
    ";
    let inventory = inventory(&h100(), functions);
    let gpu = &inventory.gpus[0];
    assert_eq!(gpu.name, "A".repeat(96));
    assert_eq!(gpu.serial.as_deref(), Some("A".repeat(30).as_str()));
    assert_eq!(gpu.board_part_number.as_ref().map(String::len), Some(80));
    assert_eq!(gpu.vbios_version, Some("\u{fffd}".repeat(32)));
    assert_eq!(inventory.driver.unwrap().nvml_version.map(|text| text.len()), Some(80));
}

#[test]
fn a_gpu_whose_identity_is_no_identity_is_a_problem_and_the_others_are_read() {
    let functions = r#"
        int nvmlDeviceGetUUID(Handle device, char *text, unsigned length) {
            unsigned index = 9;
            ((int (*)(Handle, unsigned *))original("nvmlDeviceGetIndex"))(device, &index);
            if (index == 0) { memset(text, 'G', length); return 0; }
            return ((int (*)(Handle, char *, unsigned))original("nvmlDeviceGetUUID"))(device, text, length);
        }
    "#;
    let simulated = h100();
    let inventory = inventory(&simulated, functions);
    assert_eq!(inventory.gpus.iter().map(|gpu| gpu.index).collect::<Vec<_>>(), [1]);
    let [problem] = inventory.problems.as_slice() else {
        panic!("{:?}", inventory.problems)
    };
    assert_eq!(
        (problem.index, problem.kind, problem.call.as_str()),
        (0, ProblemKind::Unreadable, "nvmlDeviceGetUUID")
    );
    assert!(problem.message.len() < 300, "{problem}");
}

#[test]
fn a_bus_address_that_is_none_is_a_problem() {
    let functions = "int nvmlDeviceGetPciInfo_v3(Handle device, void *info) { memset(info, 'Z', 68); return 0; }";
    let inventory = inventory(&h100(), functions);
    assert_eq!(inventory.gpus, []);
    let kinds: Vec<_> = inventory.problems.iter().map(|problem| problem.kind).collect();
    assert_eq!(kinds, [ProblemKind::Unreadable; 2]);
}

#[test]
fn more_gpus_than_can_be_are_an_error_of_the_node() {
    let simulated = h100();
    for count in ["257", "-1"] {
        let functions = format!("int nvmlDeviceGetCount_v2(unsigned *count) {{ *count = {count}; return 0; }}");
        let error = shimmed(&simulated, &functions)
            .inventory(&simulated.node.root())
            .unwrap_err();
        assert!(
            matches!(
                error,
                Error::Implausible {
                    call: "nvmlDeviceGetCount_v2",
                    ..
                }
            ),
            "{error:?}"
        );
    }
}

#[test]
fn sizes_and_counts_that_cannot_be_cost_themselves_and_no_memory() {
    let simulated = h100();
    simulated.node.set_mig_mode(0, true).unwrap();
    simulated.node.create_mig(0, "1g.10gb", Some(0)).unwrap();
    let functions = r"
        int nvmlDeviceGetMemoryInfo_v2(Handle device, void *info) { memset((char *)info + 8, 0xff, 32); return 0; }
        int nvmlDeviceGetMemoryInfo(Handle device, void *info) { memset(info, 0xff, 24); return 0; }
        int nvmlDeviceGetMaxMigDeviceCount(Handle device, unsigned *count) { *count = -1; return 0; }
        int nvmlDeviceGetGpuInstanceProfileInfo(Handle device, unsigned profile, unsigned *info) {
            memset(info, 0xff, 48);
            if (profile == 1) info[2] = 0; /* no slices */
            return 0;
        }
        int nvmlDeviceGetGpuInstancePossiblePlacements_v2(Handle device, unsigned profile, void *list, unsigned *count) { *count = -1; return 0; }
        int nvmlDeviceGetGpuInstancePossiblePlacements(Handle device, unsigned profile, void *list, unsigned *count) { *count = -1; return 0; }
        int nvmlDeviceGetGpuInstances(Handle device, unsigned profile, Handle *list, unsigned *count) { *count = -1; return 0; }
        int nvmlDeviceGetComputeRunningProcesses_v3(Handle device, unsigned *count, void *list) { *count = -1; return 7; }
        int nvmlDeviceGetComputeRunningProcesses_v2(Handle device, unsigned *count, void *list) { *count = -1; return 7; }
        int nvmlDeviceGetComputeRunningProcesses(Handle device, unsigned *count, void *list) { *count = -1; return 7; }
        int nvmlDeviceGetAttributes_v2(Handle device, unsigned *attributes) { memset(attributes, 0xff, 40); return 0; }
        int nvmlDeviceGetNvLinkState(Handle device, unsigned link, unsigned *active) { *active = 77; return 0; }
        int nvmlDeviceGetTopologyCommonAncestor(Handle one, Handle other, unsigned *level) { *level = 4711; return 0; }
    ";
    let started = Instant::now();
    let inventory = inventory(&simulated, functions);
    assert_eq!(inventory.gpus.len(), 2, "{:?}", inventory.problems);
    assert_eq!(
        inventory.gpus[0].memory.map(|memory| memory.total_bytes),
        Some(u64::MAX)
    );
    let mig = inventory.gpus[0].mig.as_ref().unwrap();
    assert!(
        mig.profiles
            .iter()
            .all(|profile| profile.placements.is_empty() && profile.constant != 1)
    );
    assert_eq!(mig.gpu_instances, []);
    assert!(
        inventory
            .problems
            .iter()
            .all(|problem| problem.kind == ProblemKind::Incomplete)
    );
    let usage = shimmed(&simulated, functions).usage(&simulated.node.root()).unwrap();
    assert_eq!(usage.gpus.len(), 2);
    assert!(!usage.problems.is_empty());
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn numbers_that_no_list_has_are_kept_or_left_out() {
    let functions = r"
        int nvmlDeviceGetBrand(Handle device, unsigned *value) { *value = 4711; return 0; }
        int nvmlDeviceGetArchitecture(Handle device, unsigned *value) { *value = 4711; return 0; }
        int nvmlDeviceGetComputeMode(Handle device, unsigned *value) { *value = 4711; return 0; }
        int nvmlDeviceGetVirtualizationMode(Handle device, unsigned *value) { *value = 4711; return 0; }
        int nvmlDeviceGetAddressingMode(Handle device, unsigned *value) { value[1] = 4711; return 0; }
        int nvmlDeviceGetPersistenceMode(Handle device, unsigned *value) { *value = 4711; return 0; }
        int nvmlDeviceGetEccMode(Handle device, unsigned *current, unsigned *pending) { *current = *pending = 4711; return 0; }
        int nvmlDeviceGetCudaComputeCapability(Handle device, int *major, int *minor) { *major = *minor = -1; return 0; }
        int nvmlDeviceGetMigMode(Handle device, unsigned *current, unsigned *pending) { *current = *pending = 4711; return 0; }
    ";
    let inventory = inventory(&h100(), functions);
    let gpu = &inventory.gpus[0];
    assert_eq!(
        (gpu.compute_capability, gpu.persistence_mode, gpu.ecc),
        (None, None, None)
    );
    assert!(!gpu.mig_enabled());
    assert_eq!(serde_json::to_value(gpu.compute_mode).unwrap(), 4711);
}

#[test]
fn a_driver_version_that_is_none_is_an_error_of_the_node() {
    let simulated = h100();
    let functions =
        "int nvmlSystemGetDriverVersion(char *text, unsigned length) { memset(text, ' ', length); return 0; }";
    let error = shimmed(&simulated, functions)
        .inventory(&simulated.node.root())
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::Answer {
                call: "nvmlSystemGetDriverVersion",
                ..
            }
        ),
        "{error:?}"
    );
}

/// Whether this is a process of its own for that test, which counts threads; it is made, and has to succeed, where it is not.
#[track_caller]
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "GPU_CORE_TEST_ALONE";
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let mut own = Command::new(env::current_exe().expect("this program"));
    let output = own.args([test, "--exact"]).env(ALONE, "1").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}

#[test]
fn a_driver_that_hangs_from_the_start_is_left_to_itself_and_tried_again_when_it_returns() {
    if !is_alone("garbage::a_driver_that_hangs_from_the_start_is_left_to_itself_and_tried_again_when_it_returns") {
        return;
    }
    let simulated = h100();
    let release = simulated.node.folder().join("release");
    let functions = format!(
        r#"int nvmlInit_v2(void) {{
            while (access("{}", F_OK)) usleep(1000);
            return ((int (*)(void))original("nvmlInit_v2"))();
        }}"#,
        release.display()
    );
    let search = LibrarySearch {
        library: Some(library(&simulated, &functions)),
        driver_root: None,
    };
    let limit = Duration::from_millis(100);
    for _ in 0..3 {
        let error = Library::open_within(&search, limit).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Hung {
                    call: "nvmlInit_v2",
                    ..
                }
            ),
            "{error:?}"
        );
        assert!(error.is_transient());
    }
    // Another file is not kept from being opened meanwhile.
    assert!(open(simulated.node.library()).is_ok());
    let threads = || fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    for _ in 0..20 {
        Library::open_within(&search, limit).unwrap_err();
    }
    assert!(threads() <= before + 2, "each try keeps no thread of its own");
    fs::write(&release, "").unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let library = loop {
        match Library::open_within(&search, limit.max(Duration::from_secs(5))) {
            Ok(library) => break library,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    assert_eq!(library.inventory(&simulated.node.root()).unwrap().gpus.len(), 2);
}

#[test]
fn a_driver_that_is_unloaded_or_replaced_is_told_and_a_new_library_reads_on() {
    let mut simulated = h100();
    let gone = simulated.node.folder().join("gone");
    let functions = format!(
        r#"int nvmlDeviceGetCount_v2(unsigned *count) {{
            if (!access("{}", F_OK)) return 9; /* DRIVER_NOT_LOADED */
            return ((int (*)(unsigned *))original("nvmlDeviceGetCount_v2"))(count);
        }}"#,
        gone.display()
    );
    let library = Arc::new(shimmed(&simulated, &functions));
    assert_eq!(library.inventory(&simulated.node.root()).unwrap().gpus.len(), 2);
    fs::write(&gone, "").unwrap();
    let error = library.inventory(&simulated.node.root()).unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    drop(library);
    assert_eq!(
        open(simulated.node.library())
            .unwrap()
            .inventory(&simulated.node.root())
            .unwrap()
            .gpus
            .len(),
        2
    );

    // A driver of another version is loaded while the old library is still in use.
    let old = simulated.library();
    let other = if old
        .inventory(&simulated.node.root())
        .unwrap()
        .driver
        .unwrap()
        .version
        .major()
        == 550
    {
        "535"
    } else {
        "550"
    };
    simulated.node.load_driver(other).unwrap();
    let error = old.inventory(&simulated.node.root()).unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    drop(old);
    let inventory = open(simulated.node.library())
        .unwrap()
        .inventory(&simulated.node.root())
        .unwrap();
    assert_eq!(inventory.driver.unwrap().version.major().to_string(), other);
}
