//! The front end: commands from standard input to the daemon, its answers to standard output.

use std::{
    io::{self, BufRead as _, BufReader, ErrorKind, Write as _},
    os::unix::net::UnixStream,
};

use super::{failure::Failure, folders::Folders};

/// Ends each answer; no answer holds it.
pub(super) const END: u8 = 0;

pub(super) fn run(folders: &Folders) -> Result<(), Failure> {
    let path = folders.commands();
    let daemon = UnixStream::connect(&path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Failure::NoDaemon,
        _ => Failure::file(&path)(error),
    })?;
    let mut answers = BufReader::new(&daemon);
    for line in io::stdin().lock().lines() {
        let line = line.map_err(Failure::Input)?;
        if line.trim().is_empty() {
            continue;
        }
        writeln!(&daemon, "{line}").map_err(Failure::Broken)?;
        let mut answer = Vec::new();
        answers.read_until(END, &mut answer).map_err(Failure::Broken)?;
        if answer.pop() != Some(END) {
            return Err(Failure::Broken(ErrorKind::UnexpectedEof.into()));
        }
        io::stdout().write_all(&answer).map_err(Failure::Output)?;
        if line.trim().starts_with("quit") && answer.is_empty() {
            break;
        }
    }
    Ok(())
}
