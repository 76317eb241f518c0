//! `gpu-mps-daemon` on a simulated node, with the simulated control program of MPS.
//!
//! This executable is that program as well, by the name that it is called under: the daemon has to start a program that
//! outlives single calls, and no other package's executables are there when these tests are built.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "these are tests, without the usual harness"
)]

use std::{env, ffi::OsString, panic, path::Path, process::ExitCode};

#[path = "../it/help.rs"]
mod help;
mod node;
mod tests;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().collect();
    let name = arguments.first().and_then(|path| Path::new(path).file_name());
    if name.is_some_and(|name| name.to_string_lossy().starts_with("nvidia-cuda-mps-")) {
        return gpu_sim::programs::run(arguments);
    }
    // As the usual harness: a word is a part of the names of the tests to run.
    let words: Vec<_> = arguments.iter().skip(1).filter_map(|word| word.to_str()).collect();
    let wanted = |name: &str| {
        let mut names = words.iter().filter(|word| !word.starts_with('-')).peekable();
        names.peek().is_none() || names.any(|word| name.contains(word))
    };
    let mut failed = 0;
    for (name, test) in tests::ALL {
        if words.contains(&"--list") {
            println!("{name}: test");
        } else if wanted(name) {
            let passed = panic::catch_unwind(test).is_ok();
            println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
            failed += u32::from(!passed);
        }
    }
    ExitCode::from(if failed == 0 { 0 } else { 101 })
}
