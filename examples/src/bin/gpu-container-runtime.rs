//! `gpu-container-runtime`: see [`gpu_examples::container_runtime`].

fn main() -> std::process::ExitCode {
    gpu_examples::container_runtime::main(std::env::args_os())
}
