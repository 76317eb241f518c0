//! The programs that a driver brings, in one executable: the name it is called by tells which.
//!
//! | name | |
//! |---|---|
//! | `nvidia-smi`, and any other name | a summary of the GPUs, queries, MIG |
//! | `nvidia-cuda-mps-control`, `nvidia-cuda-mps-server` | the control daemon of the Multi-Process Service, its front end, and the server it starts |
//! | `nvidia-imex`, `nvidia-imex-ctl` | the service by which nodes share memory over NVLink, and how its state is asked |

mod background;
mod imex;
mod mps;

use std::{ffi::OsString, path::Path, process::ExitCode};

/// Runs the program that the first of these arguments names.
///
/// Exit codes are those of the program.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let name = arguments.first().and_then(|path| Path::new(path).file_name());
    match name.and_then(|name| name.to_str()) {
        Some(mps::CONTROL) => mps::control(&arguments),
        Some(mps::SERVER) => mps::server(),
        Some(imex::SERVICE) => imex::service(&arguments),
        Some(imex::CONTROL) => imex::control(&arguments),
        _ => crate::smi::run(arguments),
    }
}
