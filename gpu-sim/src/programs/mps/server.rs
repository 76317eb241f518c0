//! `nvidia-cuda-mps-server`: the daemon starts it, tells it on its standard input who comes and goes, and ends it by
//! closing that. What it logs goes to its standard error, which is `server.log`.

use std::{
    io::{self, BufRead as _, Write as _},
    os::fd::AsFd as _,
    process::ExitCode,
};

use super::log::Log;

/// What it writes to standard output when clients may come.
pub(super) const READY: &str = "ready\n";

pub(super) fn run() -> ExitCode {
    let Ok(file) = io::stderr().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    let log = Log::to(file.into());
    log.line("Other", "Startup");
    log.line("Other", "Initializing server process");
    // Settings, then an empty line, then clients.
    for line in io::stdin().lock().lines() {
        match line {
            Ok(line) if line.is_empty() => {
                log.line("Server", "Server has started");
                let told = io::stdout().write_all(READY.as_bytes());
                if told.and_then(|()| io::stdout().flush()).is_err() {
                    return ExitCode::FAILURE;
                }
            }
            Ok(line) => log.line("Server", line),
            Err(_) => break,
        }
    }
    log.line("Server", "Server exit");
    ExitCode::SUCCESS
}
