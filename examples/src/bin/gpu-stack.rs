//! `gpu-stack`: see [`gpu_examples::stack`].

fn main() -> std::process::ExitCode {
    gpu_examples::stack::main(std::env::args_os())
}
