//! Programs of the host, which may hang.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Output, Stdio},
    thread::sleep,
    time::Duration,
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    process::{Pid, Signal, kill_process_group},
};

use super::patience::Patience;

/// Most that is read of what a program says.
const LIMIT: u64 = 64 << 10;

/// A program of the host, run in the host's root.
pub(super) fn on_host(root: &Path, program: &Path) -> Command {
    if root == Path::new("/") {
        return Command::new(program);
    }
    let mut command = Command::new("chroot");
    command.arg(root).arg(program);
    command
}

/// Runs a program to its end; one that does not come to it is killed, and what it has started with it.
pub(super) fn run(mut command: Command, patience: Patience<'_>) -> io::Result<Output> {
    // Files, not pipes: a pipe is full at some time, and a child of the program may keep it open.
    let (mut out, mut err) = (memory()?, memory()?);
    command
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(err.try_clone()?)
        .process_group(0);
    let mut child = command.spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if let Err(error) = patience.check() {
            // It may have ended right now.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            child.wait()?;
            return Err(error);
        }
        sleep(Duration::from_millis(5));
    };
    Ok(Output {
        status,
        stdout: said(&mut out)?,
        stderr: said(&mut err)?,
    })
}

fn memory() -> io::Result<File> {
    Ok(memfd_create("said", MemfdFlags::CLOEXEC)?.into())
}

fn said(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(LIMIT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::apply::Stop;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_a_program_says_is_read_to_the_limit_and_nothing_is_waited_for_that_it_left_running() {
        let stop = Stop::default();
        let patience = Patience::of(Duration::from_secs(10), &stop);
        let output = run(sh("sleep 60 & head -c 300000 /dev/zero; echo x >&2; exit 3"), patience).unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.len(), output.stderr.as_slice()),
            (Some(3), 64 << 10, b"x\n".as_slice())
        );
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let start = Instant::now();
        let stop = Stop::default();
        let error = run(sh("sleep 60"), Patience::of(Duration::from_millis(50), &stop)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        stop.stop();
        let error = run(sh("sleep 60"), Patience::of(Duration::from_mins(1), &stop)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
