//! A driver that misbehaves: functions in C in front of a simulated driver's, which answers the rest.

use std::{fs, path::PathBuf, process::Command};

use gpu_core::nvml::Library;

use crate::{Simulated, open};

/// What the functions of a test may use.
const PRELUDE: &str = r"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
typedef void *Handle;
/* The simulated driver's own function. */
static void *original(const char *name) { return dlsym(dlopen(DRIVER, RTLD_NOW), name); }
";

/// The path of a library in which `functions`, in C, take the place of the simulated driver's.
///
/// It needs the driver by its path, so the loader finds there what it has not itself, also where the process has other drivers of
/// the same SONAME.
pub(crate) fn library(simulated: &Simulated, functions: &str) -> PathBuf {
    let folder = simulated.node.folder().join("shim");
    fs::create_dir_all(&folder).expect("a folder can be made");
    let driver = folder.join("driver.so");
    let source = folder.join("shim.c");
    let shim = folder.join("libnvidia-ml.so.1");
    // A library without SONAME is needed by the path it was linked by; it stands in for the driver until then.
    fs::write(&source, "").expect("a file can be written");
    compile(&[&"-o", &driver, &source]);
    fs::write(&source, format!("{PRELUDE}{functions}")).expect("a file can be written");
    let define = format!("-DDRIVER=\"{}\"", driver.display());
    compile(&[&"-Wl,--no-as-needed", &define, &"-o", &shim, &source, &driver]);
    fs::copy(simulated.node.library(), &driver).expect("the driver can be copied");
    shim
}

/// That library, opened.
pub(crate) fn shimmed(simulated: &Simulated, functions: &str) -> Library {
    open(library(simulated, functions)).expect("NVML initialises")
}

fn compile(arguments: &[&dyn AsRef<std::ffi::OsStr>]) {
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-Wno-unused-function"])
        .args(arguments)
        .output()
        .expect("a C compiler is there, as Rust's linker needs one");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
