//! `gpu-stack`: all programs in one executable, called by the name it is called under, or by its first argument.
//!
//! A container image holds it once and a link for each program, the vendor's names among them. `gpu-container-runtime` is
//! none of them: it is installed on hosts of any make, as a static executable that loads nothing, and this one loads NVML.

use std::{ffi::OsString, path::Path, process::ExitCode};

use crate::program::{self, print, remark};

type Program = fn(Vec<OsString>) -> ExitCode;

/// Names and programs; the vendor's names come after ours.
const PROGRAMS: &[(&str, Program)] = &[
    ("gpu-cdi-hook", |arguments| gpu_cdi::hook::main(arguments)),
    ("gpu-device-plugin", |arguments| crate::device_plugin::main(arguments)),
    ("gpu-feature-discovery", |arguments| {
        crate::feature_discovery::main(arguments)
    }),
    ("gpu-mig-manager", |arguments| crate::mig_manager::main(arguments)),
    ("gpu-mps-daemon", |arguments| crate::mps_daemon::main(arguments)),
    ("gpu-toolkit", |arguments| crate::toolkit::main(arguments)),
    ("gpuctl", |arguments| crate::gpuctl::main(arguments)),
    ("config-manager", |arguments| crate::config_manager::main(arguments)),
    ("mps-control-daemon", |arguments| crate::mps_daemon::main(arguments)),
    ("nvidia-cdi-hook", |arguments| gpu_cdi::hook::main(arguments)),
    ("nvidia-ctk", |arguments| crate::gpuctl::main(arguments)),
    ("nvidia-ctk-installer", |arguments| crate::toolkit::main(arguments)),
    ("nvidia-device-plugin", |arguments| {
        crate::device_plugin::main(arguments)
    }),
    ("nvidia-mig-manager", |arguments| crate::mig_manager::main(arguments)),
    ("nvidia-mig-parted", |mut arguments| {
        arguments.insert(arguments.len().min(1), "mig".into());
        crate::gpuctl::main(arguments)
    }),
];

/// Runs the program that the arguments name, the name of the executable first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut arguments: Vec<_> = arguments.into_iter().collect();
    if let Some(program) = arguments.first().and_then(find) {
        return program(arguments);
    }
    if arguments.len() > 1 {
        arguments.remove(0);
    }
    if let Some(program) = arguments.first().and_then(find) {
        return program(arguments);
    }
    match arguments.first().and_then(|argument| argument.to_str()) {
        Some("--help" | "-h" | "help") => program::run(|| print(usage())),
        Some("--version" | "-V") => program::run(|| print(concat!("gpu-stack ", env!("CARGO_PKG_VERSION"), "\n"))),
        _ => {
            remark(usage().trim_end());
            ExitCode::from(2)
        }
    }
}

fn usage() -> String {
    let names: Vec<_> = PROGRAMS.iter().map(|(name, _)| *name).collect();
    format!(
        "Usage: gpu-stack PROGRAM [ARGUMENTS]\n\nPrograms, also by the name that it is called under: {}\n",
        names.join(", ")
    )
}

fn find(argument: &OsString) -> Option<Program> {
    let name = Path::new(argument).file_name()?;
    PROGRAMS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, program)| *program)
}
