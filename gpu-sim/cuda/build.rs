//! Gives the library its name, and keeps what it needs down to libc.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    if env::var("CARGO_CFG_TARGET_ENV").as_deref() != Ok("gnu") {
        return;
    }
    // As gpu-sim does: containers may have no libgcc_s.
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let answer = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output();
    let found = answer.is_ok_and(|answer| Path::new(String::from_utf8_lossy(&answer.stdout).trim()).is_absolute());
    if found {
        println!("cargo:rustc-link-lib=static:-bundle=gcc_eh");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-u,_Unwind_Resume");
        println!("cargo:rustc-link-arg-bin=cuda-devices=-Wl,-u,_Unwind_Resume");
    }
}
