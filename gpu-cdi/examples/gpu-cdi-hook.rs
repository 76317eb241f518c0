//! The hook program, as a container runtime calls it; what `tests/it/hook.rs` runs.
//!
//! The program that users install is `gpu-cdi-hook` of the examples' package, with the same line in it. This one exists
//! because the tests of a package get built what belongs to it alone, and because it shows the whole program at one
//! glance. To build it as it should be run, static:
//! `RUSTFLAGS="-C target-feature=+crt-static" cargo build --target x86_64-unknown-linux-gnu -p gpu-cdi --features hook
//! --example gpu-cdi-hook`.

fn main() -> std::process::ExitCode {
    gpu_cdi::hook::main(std::env::args_os())
}
