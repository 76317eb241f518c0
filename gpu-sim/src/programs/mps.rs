//! The Multi-Process Service: `nvidia-cuda-mps-control` (daemon and front end) and `nvidia-cuda-mps-server`.
//!
//! Options, commands, files in the two folders, percentages and log lines are the vendor's, as its manual and published
//! logs show them. What goes over the sockets is our own, between this daemon, its front end and the simulated
//! `libcuda.so.1`: the vendor's is not published.
//!
//! In the pipe folder: `control` (clients), `control_privileged` (front end: for the daemon's user alone),
//! `control_lock` (held by the daemon), `nvidia-cuda-mps-control.pid`. In the log folder: `control.log`, `server.log`.

mod command;
mod daemon;
mod failure;
mod folders;
mod frontend;
mod log;
#[expect(unsafe_code, reason = "asks the kernel who is at the other end of a socket")]
mod peer;
mod server;
mod servers;
mod settings;

use std::{
    env,
    ffi::OsString,
    io::{self, Write as _},
    process::ExitCode,
};

use self::{daemon::Options, failure::Failure, folders::Folders};
use super::background;

pub(super) const CONTROL: &str = "nvidia-cuda-mps-control";
pub(super) const SERVER: &str = "nvidia-cuda-mps-server";

const HELP: &str = "\
nvidia-cuda-mps-control of a simulated node

  (no arguments)               read commands from standard input and have the daemon carry them out
  -d                           start the daemon in the background
  -f                           start the daemon in the foreground; its log goes to standard output too
  -M, --multiuser-server       with -d or -f: one server for the clients of all users
  -h, --help                   this text

The daemon's folders are CUDA_MPS_PIPE_DIRECTORY (/tmp/nvidia-mps) and CUDA_MPS_LOG_DIRECTORY (/var/log/nvidia-mps).
";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Frontend,
    Background,
    Foreground,
    Help,
}

/// Runs `nvidia-cuda-mps-control`.
///
/// Exit codes: 0 done (of the front end: that the daemon answered), 1 failed, with a message on stderr.
pub(super) fn control(arguments: &[OsString]) -> ExitCode {
    let folders = Folders::from_env(env::var_os);
    let done = parse(arguments.get(1..).unwrap_or_default()).and_then(|(mode, multi_user)| match mode {
        Mode::Help => print(HELP),
        Mode::Frontend => frontend::run(&folders),
        Mode::Background if !background::is_daemon() => start(arguments),
        Mode::Background => daemon::run(
            &folders,
            Options {
                multi_user,
                echo: false,
            },
            background::detach,
        ),
        Mode::Foreground => daemon::run(&folders, Options { multi_user, echo: true }, || Ok(())),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let _ = writeln!(io::stderr(), "{failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs `nvidia-cuda-mps-server`, which the daemon starts.
pub(super) fn server() -> ExitCode {
    server::run()
}

fn parse(arguments: &[OsString]) -> Result<(Mode, bool), Failure> {
    let (mut mode, mut multi_user) = (Mode::Frontend, false);
    for argument in arguments {
        match argument.to_string_lossy().as_ref() {
            "-d" => mode = Mode::Background,
            "-f" => mode = Mode::Foreground,
            "-M" | "--multiuser-server" => multi_user = true,
            "-h" | "--help" => return Ok((Mode::Help, false)),
            other => return Err(Failure::Option(other.to_owned())),
        }
    }
    if multi_user && mode == Mode::Frontend {
        return Err(Failure::Option("-M without -d or -f".to_owned()));
    }
    Ok((mode, multi_user))
}

/// Starts the daemon; where it has not started, it has said why itself.
fn start(arguments: &[OsString]) -> Result<(), Failure> {
    match background::start(CONTROL, arguments).map_err(Failure::Start)? {
        None => Ok(()),
        Some(status) => Err(Failure::Background(status)),
    }
}

fn print(text: &str) -> Result<(), Failure> {
    io::stdout().write_all(text.as_bytes()).map_err(Failure::Output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(arguments: &str, expected: Result<(Mode, bool), &str>) {
        let arguments: Vec<OsString> = arguments.split_whitespace().map(OsString::from).collect();
        let parsed = parse(&arguments).map_err(|failure| failure.to_string());
        assert_eq!(parsed, expected.map_err(str::to_owned));
    }

    #[test]
    fn options_say_what_to_be_and_unknown_ones_are_refused() {
        check("", Ok((Mode::Frontend, false)));
        check("-d", Ok((Mode::Background, false)));
        check("-f -M", Ok((Mode::Foreground, true)));
        check("-d --multiuser-server", Ok((Mode::Background, true)));
        check(
            "-M",
            Err("unknown option `-M without -d or -f`: see nvidia-cuda-mps-control -h"),
        );
        check("-x", Err("unknown option `-x`: see nvidia-cuda-mps-control -h"));
    }
}
