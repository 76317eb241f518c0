//! The hook program, as a container runtime calls it. Built by the tests of the `hook` module, and statically by
//! `RUSTFLAGS="-C target-feature=+crt-static" cargo build --target x86_64-unknown-linux-gnu --example gpu-cdi-hook`.

fn main() -> std::process::ExitCode {
    gpu_cdi::hook::main(std::env::args_os())
}
