//! The `nvidia-smi` of a simulated node.

fn main() -> std::process::ExitCode {
    gpu_sim::smi::run(std::env::args_os())
}
