//! The driver's programs of a simulated node in one executable, named after the one that is used most.

fn main() -> std::process::ExitCode {
    gpu_sim::programs::run(std::env::args_os())
}
