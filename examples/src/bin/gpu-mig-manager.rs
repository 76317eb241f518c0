//! `gpu-mig-manager`: see [`gpu_examples::mig_manager`].

fn main() -> std::process::ExitCode {
    gpu_examples::mig_manager::main(std::env::args_os())
}
