//! Becoming a daemon without `fork`: the program starts itself again and waits until that one serves.

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{Command, ExitStatus, Stdio},
};

/// Set for the process that becomes the daemon. It tells that it serves by one line on its standard output.
const BACKGROUND: &str = "GPU_SIM_BACKGROUND";
const READY: &str = "ready\n";

/// Whether this process is to become the daemon.
pub(super) fn is_daemon() -> bool {
    env::var_os(BACKGROUND).is_some()
}

/// Starts the same program again, under its name and with its arguments, as the daemon, and waits until it serves. None: it
/// does. Else it has said on stderr why not, and ended like that.
pub(super) fn start(name: &str, arguments: &[OsString]) -> io::Result<Option<ExitStatus>> {
    let mut daemon = Command::new(env::current_exe()?)
        .arg0(name)
        .args(arguments.get(1..).unwrap_or_default())
        .env(BACKGROUND, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    if let Some(stdout) = &mut daemon.stdout {
        stdout.read_to_string(&mut said)?;
    }
    if said == READY {
        Ok(None)
    } else {
        daemon.wait().map(Some)
    }
}

/// Leaves the session, tells that the daemon serves, and lets go of the streams of whoever started it.
pub(super) fn detach() -> io::Result<()> {
    let _ = rustix::process::setsid(); // it fails for one that leads a session already
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    io::stdout().write_all(READY.as_bytes())?;
    io::stdout().flush()?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(rustix::stdio::dup2_stderr(&nothing)?)
}
