//! `gpuctl`: see [`gpu_examples::gpuctl`].

fn main() -> std::process::ExitCode {
    gpu_examples::gpuctl::main(std::env::args_os())
}
