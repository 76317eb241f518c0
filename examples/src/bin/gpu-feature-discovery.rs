//! `gpu-feature-discovery`: see [`gpu_examples::feature_discovery`].

fn main() -> std::process::ExitCode {
    gpu_examples::feature_discovery::main(std::env::args_os())
}
