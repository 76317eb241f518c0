//! `gpu-e2e-images PROGRAMS OUT [STACK]`: writes the images that every test cluster has, `pause.tar` and `busybox.tar`,
//! and, given the folder that `e2e/stack` prints, `stack.tar` with our programs.
//!
//! PROGRAMS holds the static programs `pause` and `busybox`, as `e2e/programs` leaves them.

#![expect(clippy::print_stderr, reason = "a program says on standard error what went wrong")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use gpu_e2e::images;

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = env::args_os().skip(1).map(PathBuf::from).collect();
    let written = match arguments.as_slice() {
        [programs, out] => write(programs, out, None),
        [programs, out, stack] => write(programs, out, Some(stack)),
        _ => {
            eprintln!("usage: gpu-e2e-images PROGRAMS OUT [STACK]");
            return ExitCode::from(2);
        }
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpu-e2e-images: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn write(programs: &Path, out: &Path, stack: Option<&Path>) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("cannot make the folder `{}`", out.display()))?;
    images::pause(programs)?.save(out.join("pause.tar"))?;
    images::busybox(programs)?.save(out.join("busybox.tar"))?;
    match stack {
        Some(stack) => images::stack(stack)?.save(out.join("stack.tar")),
        None => Ok(()),
    }
}
