//! `gpu-toolkit`: see [`gpu_examples::toolkit`].

fn main() -> std::process::ExitCode {
    gpu_examples::toolkit::main(std::env::args_os())
}
