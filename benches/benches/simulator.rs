//! How many NVML calls the simulated library answers in a second: to one process, to 16 at once, and to 16 beside one that
//! changes the state all the time.
//!
//! `cargo bench -p gpu-benches --bench simulator`. The calls are those of a short inventory, on eight GPUs with seven MIG devices
//! each. The same loop on a library whose functions do nothing (`native/null.c`; it needs a C compiler) tells what of it is the
//! calling.
#![expect(unsafe_code, reason = "calls the C ABI as C does")]
#![expect(clippy::print_stdout, reason = "a benchmark tells")]

use std::{
    env,
    ffi::c_uint,
    path::Path,
    process::{Command, Stdio},
    ptr::null_mut,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use gpu_benches::{SEVENTHS, compile, divided};
use nvml_wrapper_sys::bindings::{NvmlLib, nvmlDevice_t, nvmlMemory_t};

const TIME: Duration = Duration::from_secs(2);
const PROCESSES: usize = 16;

/// Names the library to a process that is one of many.
const CHILD: &str = "SIMULATOR_BENCH_LIBRARY";

fn main() -> anyhow::Result<()> {
    if let Some(library) = env::var_os(CHILD) {
        println!("{}", calls_per_second(Path::new(&library))?);
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let node = divided(&folder.path().join("node"), &SEVENTHS)?;
    let library = node.library();
    let null = compile(folder.path(), "null", &["-shared", "-fPIC", "-O2"], &[])?;
    let (one, nothing) = (calls_per_second(&library)?, calls_per_second(&null)?);
    println!("one process: {one:.0} calls/s (bar: 100000)");
    println!("the same on functions that do nothing: {nothing:.0} calls/s");
    println!("{PROCESSES} processes at once: {}", together(&library, || Ok(()))?);
    let changing = together(&library, || {
        let started = Instant::now();
        let mut changes = 0_u32;
        while started.elapsed() < TIME {
            node.inject_ecc(0, 1, 0)?;
            changes += 1;
        }
        println!(
            "beside them: {:.0} changes/s",
            f64::from(changes) / started.elapsed().as_secs_f64()
        );
        Ok(())
    });
    println!("{PROCESSES} processes beside a writer: {}", changing?);
    Ok(())
}

/// The sum of what 16 processes reach, and the least of them.
fn together(library: &Path, meanwhile: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<String> {
    let start = |_| {
        Command::new(env::current_exe()?)
            .env(CHILD, library)
            .stdout(Stdio::piped())
            .spawn()
    };
    let children: Vec<_> = (0..PROCESSES).map(start).collect::<Result<_, _>>()?;
    meanwhile()?;
    let mut rates = Vec::new();
    for child in children {
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "a process failed");
        rates.push(String::from_utf8(output.stdout)?.trim().parse::<f64>()?);
    }
    rates.sort_by(f64::total_cmp);
    let each: Vec<String> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
    Ok(format!(
        "{:.0} calls/s in all; of each: {}",
        rates.iter().sum::<f64>(),
        each.join(" ")
    ))
}

/// Calls a function of the library and counts it.
macro_rules! call {
    ($lib:expr, $count:expr, $name:ident ( $($argument:expr),* )) => {{
        // SAFETY: the arguments are of the C function's types and each pointer points to a value that is there until the
        // call returns, or to a buffer of the length given.
        let code = unsafe { $lib.$name($($argument),*) };
        ensure!(code == 0, "{} answers {code}", stringify!($name));
        $count += 1_u64;
    }};
}

fn calls_per_second(library: &Path) -> anyhow::Result<f64> {
    // SAFETY: the library has no initialiser and was built with this benchmark.
    let lib = unsafe { NvmlLib::new(library) }.context("the library does not load")?;
    let mut count = 0;
    call!(lib, count, nvmlInit_v2());
    let started = Instant::now();
    while started.elapsed() < TIME {
        round(&lib, &mut count)?;
    }
    #[expect(clippy::cast_precision_loss, reason = "far below what a float holds")]
    let rate = count as f64 / started.elapsed().as_secs_f64();
    Ok(rate)
}

/// The calls of one inventory.
fn round(lib: &NvmlLib, count: &mut u64) -> anyhow::Result<()> {
    let mut gpus = 0;
    call!(lib, *count, nvmlDeviceGetCount_v2(&raw mut gpus));
    for index in 0..gpus {
        let mut gpu: nvmlDevice_t = null_mut();
        call!(lib, *count, nvmlDeviceGetHandleByIndex_v2(index, &raw mut gpu));
        describe(lib, gpu, count)?;
        let mut most: c_uint = 0;
        call!(lib, *count, nvmlDeviceGetMaxMigDeviceCount(gpu, &raw mut most));
        for mig in 0..most {
            let mut device: nvmlDevice_t = null_mut();
            call!(
                lib,
                *count,
                nvmlDeviceGetMigDeviceHandleByIndex(gpu, mig, &raw mut device)
            );
            describe(lib, device, count)?;
        }
    }
    Ok(())
}

fn describe(lib: &NvmlLib, device: nvmlDevice_t, count: &mut u64) -> anyhow::Result<()> {
    let mut text = [0; 96];
    call!(lib, *count, nvmlDeviceGetName(device, text.as_mut_ptr(), 96));
    call!(lib, *count, nvmlDeviceGetUUID(device, text.as_mut_ptr(), 96));
    let mut memory = nvmlMemory_t {
        total: 0,
        free: 0,
        used: 0,
    };
    call!(lib, *count, nvmlDeviceGetMemoryInfo(device, &raw mut memory));
    Ok(())
}
