//! `gpu-cdi-hook`: see [`gpu_cdi::hook`]. The one to install; `gpu-cdi`'s own example is for its tests.

fn main() -> std::process::ExitCode {
    gpu_cdi::hook::main(std::env::args_os())
}
