//! `gpu-cdi-hook`: see [`gpu_cdi::hook`].

fn main() -> std::process::ExitCode {
    gpu_cdi::hook::main(std::env::args_os())
}
