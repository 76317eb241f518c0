#![expect(
    unsafe_code,
    reason = "the environment is emptied, for which the standard library has only unsafe calls"
)]

use std::{
    env,
    error::Error as _,
    ffi::OsString,
    fs::File,
    io::{self, Write as _},
    process::ExitCode,
};

use object::read::ReadCache;
use rustix::fs::Mode;

use super::{Arguments, Host, Report, Result, answer, isolation};
use crate::{elf, names};

/// The hook program: [`run`](super::run) with the process's standard input, and what it reports on standard error.
///
/// Empties the environment, and sets folder (`/`) and umask (`022`): none of the three may come from an image. A relative
/// path of `--container-spec` starts from the folder that it was started in.
/// Warnings are always told, notes if [`NVIDIA_CTK_DEBUG`](crate::names::DEBUG) is `true` or `--debug` is given; `--quiet`
/// silences both.
///
/// Warns if the program is not static. It is not refused: what the loader of a dynamic one obeys has been obeyed by then,
/// and specs made by [`generate`](crate::generate()) give hooks an environment of their own.
///
/// Returns 0 if the hook did its work or is unknown, 1 if it failed and 2 for bad usage. Fails in a process with other
/// threads.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<_> = args.into_iter().collect();
    let debug = env::var_os(names::DEBUG).is_some_and(|value| value == "true" || value == "1");
    let level = Level::of(&args, debug);
    if let Err(error) = clear_environment() {
        return finish(Err(error), level);
    }
    if level >= Level::Warning && is_dynamic() {
        tell("warning: this program is not static: its loader obeys an environment that an image may have a say in");
    }
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    finish(carry_out(args), level)
}

fn carry_out(args: Vec<OsString>) -> Result<Report> {
    // While it is still known where their paths start.
    let arguments = Arguments::parse(args)?;
    rustix::process::chdir("/").map_err(super::Error::io("go to `/`"))?;
    answer(&Host::default(), arguments, io::stdin().lock())
}

/// Removes what is in the environment, whatever it looks like: entries need have neither a name nor a `=`.
fn clear_environment() -> Result<()> {
    isolation::check_single_thread()?;
    // SAFETY: there is no other thread, as checked above, that could read or change the environment meanwhile.
    match unsafe { libc::clearenv() } {
        0 => Ok(()),
        _ => Err(super::Error::io("empty the environment")(io::Error::last_os_error())),
    }
}

/// Whether this program was started by a loader; where that cannot be seen, it is taken for static.
fn is_dynamic() -> bool {
    File::open("/proc/self/exe").is_ok_and(|file| elf::has_interpreter(&ReadCache::new(file)) == Ok(true))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Error,
    Warning,
    Note,
}

impl Level {
    /// The flags that stand before the sub-command.
    fn of(args: &[OsString], debug: bool) -> Self {
        let flags = || {
            args.iter()
                .skip(1)
                .take_while(|arg| arg.to_string_lossy().starts_with('-'))
        };
        let given = |names: &[&str]| flags().any(|arg| names.iter().any(|name| arg == name));
        if given(&["--quiet"]) {
            Self::Error
        } else if debug || given(&["--debug", "-d"]) {
            Self::Note
        } else {
            Self::Warning
        }
    }
}

fn tell(line: &str) {
    // Nobody is left to tell if this fails.
    let _ = writeln!(io::stderr().lock(), "gpu-cdi-hook: {line}");
}

fn finish(result: Result<Report>, level: Level) -> ExitCode {
    match result {
        Ok(report) => {
            if level >= Level::Warning {
                report
                    .warnings
                    .iter()
                    .for_each(|warning| tell(&format!("warning: {warning}")));
            }
            if level >= Level::Note {
                report.notes.iter().for_each(|note| tell(note));
            }
            match report.output.map(|text| io::stdout().write_all(text.as_bytes())) {
                Some(Err(_)) => ExitCode::from(1),
                _ => ExitCode::SUCCESS,
            }
        }
        Err(error) => {
            let mut line = error.to_string();
            let mut cause = error.source();
            while let Some(error) = cause {
                line = format!("{line}: {error}");
                cause = error.source();
            }
            tell(&line);
            ExitCode::from(if error.is_usage() { 2 } else { 1 })
        }
    }
}
