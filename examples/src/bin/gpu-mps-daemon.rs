//! `gpu-mps-daemon`: see [`gpu_examples::mps_daemon`].

fn main() -> std::process::ExitCode {
    gpu_examples::mps_daemon::main(std::env::args_os())
}
