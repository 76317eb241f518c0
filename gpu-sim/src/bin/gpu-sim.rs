//! Makes simulated nodes and lets things happen to them.

fn main() -> std::process::ExitCode {
    gpu_sim::cli::run(std::env::args_os())
}
