//! The log of NVML calls.
#![expect(unsafe_code, reason = "calls the C ABI as C does")]

use std::{collections::BTreeSet, ffi::c_uint, process::Command, thread, time::SystemTime};

use gpu_sim::{Call, NodeSpec};
use nvml_wrapper_sys::bindings::NvmlLib;

use crate::{Simulated, output};

fn names(calls: &[Call]) -> Vec<&str> {
    calls.iter().map(|call| call.function.as_str()).collect()
}

#[test]
fn nothing_is_logged_until_asked_for_and_then_what_is_called() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(2));
    let nvml = node.nvml();
    let gpu = nvml.device_by_index(1).unwrap();
    assert_eq!(node.node.calls().unwrap(), []);

    let before = SystemTime::now();
    node.node.log_calls(true).unwrap();
    gpu.name().unwrap();
    node.node.lose(1).unwrap();
    gpu.uuid().unwrap_err();
    node.node.log_calls(false).unwrap();
    gpu.minor_number().unwrap_err();

    let calls = node.node.calls().unwrap();
    assert_eq!(names(&calls), ["nvmlDeviceGetName", "nvmlDeviceGetUUID"]);
    for (call, code) in calls.iter().zip([0, 15]) {
        assert_eq!(call.device.as_deref(), Some(node.node.gpus()[1].uuid.as_str()));
        assert_eq!((call.pid, call.code), (std::process::id(), code));
        assert!(call.duration.as_secs() < 5);
    }
    let microsecond = std::time::Duration::from_micros(1);
    assert!(calls[0].time + microsecond >= before && calls[0].time <= calls[1].time);
    node.node.clear_calls().unwrap();
    assert_eq!(node.node.calls().unwrap(), []);
}

#[test]
fn a_mig_device_is_named_by_its_own_uuid() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    node.node.set_mig_mode(0, true).unwrap();
    let made = node.node.create_mig(0, "1g.10gb", None).unwrap();
    let nvml = node.nvml();
    let device = nvml.device_by_index(0).unwrap().mig_device_by_index(0).unwrap();
    node.node.log_calls(true).unwrap();
    device.name().unwrap();
    let calls = node.node.calls().unwrap();
    assert_eq!(calls[0].device.as_ref(), Some(&made.devices[0].2));
}

#[test]
fn whole_programs_are_logged_from_the_first_call_to_the_last() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    node.node.log_calls(true).unwrap();
    let mut command = Command::new(node.node.root().join("usr/bin/nvidia-smi"));
    command.arg("-L").env("LD_LIBRARY_PATH", node.node.folder().join("lib"));
    assert!(output(&mut command).status.success());
    let calls = node.node.calls().unwrap();
    assert_eq!(calls.first().unwrap().function, "nvmlInit_v2");
    assert_eq!(calls.last().unwrap().function, "nvmlShutdown");
    let pids: BTreeSet<u32> = calls.iter().map(|call| call.pid).collect();
    assert_eq!(pids.len(), 1);
    assert!(!pids.contains(&std::process::id()));
}

#[test]
fn lines_of_processes_and_threads_at_once_are_whole() {
    const EACH: usize = 200;
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1));
    let nvml = node.nvml();
    node.node.log_calls(true).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            let node = &node;
            scope.spawn(move || {
                for _ in 0..3 {
                    let mut command = Command::new(node.node.root().join("usr/bin/nvidia-smi"));
                    command.env("LD_LIBRARY_PATH", node.node.folder().join("lib"));
                    assert!(output(&mut command).status.success());
                }
            });
            scope.spawn(|| {
                for _ in 0..EACH {
                    nvml.device_count().unwrap();
                }
            });
        }
    });
    let calls = node.node.calls().unwrap();
    let count = |function: &str| calls.iter().filter(|call| call.function == function).count();
    let mine = calls.iter().filter(|call| call.pid == std::process::id()).count();
    assert_eq!(mine, 4 * EACH);
    assert_eq!((count("nvmlInit_v2"), count("nvmlShutdown")), (12, 12));
    let lines = std::fs::read_to_string(node.node.folder().join("state/calls")).unwrap();
    assert_eq!(lines.lines().count(), calls.len());
}

/// The log names a function by the type of a closure in it; this holds that for each.
#[test]
fn every_function_is_logged_by_its_own_name() {
    let node = Simulated::new(&NodeSpec::new("h100").gpus(1).driver("610"));
    // SAFETY: the library has no initialiser and was built with this test.
    let lib = unsafe { NvmlLib::new(node.node.library()) }.unwrap();
    // SAFETY: the function takes no argument.
    assert_eq!(unsafe { lib.nvmlInit_v2() }, 0);
    node.node.log_calls(true).unwrap();
    let functions: Vec<&str> = include_str!("../../nvml.symbols")
        .lines()
        .filter(|name| !["nvmlErrorString", "nvmlShutdown"].contains(name))
        .collect();
    for name in &functions {
        call_with_nothing(&node, name);
    }
    let calls = node.node.calls().unwrap();
    let logged: BTreeSet<&str> = names(&calls).into_iter().collect();
    let missing: Vec<_> = functions.iter().filter(|name| !logged.contains(**name)).collect();
    assert_eq!(missing, [] as [&&str; 0]);
    assert_eq!(calls.len(), functions.len());
}

/// Calls a function with nulls and zeros only: every function takes such arguments, none more than eight.
fn call_with_nothing(node: &Simulated, name: &str) -> c_uint {
    type Function = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize, usize) -> c_uint;
    // SAFETY: the library is loaded already, and stays.
    let library = unsafe { libloading::Library::new(node.node.library()) }.expect("the library loads");
    // SAFETY: integers and pointers are passed alike on the machines that this crate is for, and what a function does not
    // take it does not look at.
    let function: libloading::Symbol<'_, Function> = unsafe { library.get(name.as_bytes()) }.expect("it is exported");
    // SAFETY: a null pointer and a zero are valid arguments of every NVML function.
    unsafe { function(0, 0, 0, 0, 0, 0, 0, 0) }
}
