//! `gpu-device-plugin`: see [`gpu_examples::device_plugin`].

fn main() -> std::process::ExitCode {
    gpu_examples::device_plugin::main(std::env::args_os())
}
