//! `quickstart`: see [`gpu_examples::quickstart`].

fn main() -> std::process::ExitCode {
    gpu_examples::quickstart::main(std::env::args_os())
}
