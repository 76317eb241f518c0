//! How a library that stands in for one of the driver's is linked.

use std::{env, path::Path, process::Command};

/// Names the library, keeps it loaded once it is, and keeps `libgcc_s` out of what it and the program need: like the driver's,
/// they go into containers whose images may have no more than libc. Where the compiler brings no static unwinder they need
/// `libgcc_s` as any Rust program does.
pub(crate) fn as_the_drivers(name: &str, program: &str) {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{name}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    if env::var("CARGO_CFG_TARGET_ENV").as_deref() != Ok("gnu") {
        return;
    }
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let answer = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output();
    // A compiler that does not have the file repeats its bare name.
    let found = answer.is_ok_and(|answer| Path::new(String::from_utf8_lossy(&answer.stdout).trim()).is_absolute());
    if found {
        println!("cargo:rustc-link-lib=static:-bundle=gcc_eh");
        // GNU ld takes from an archive only what something before it needs.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-u,_Unwind_Resume");
        println!("cargo:rustc-link-arg-bin={program}=-Wl,-u,_Unwind_Resume");
    }
}
