//! What every program does the same way: errors, exit codes and standard output.

use std::{
    any::TypeId,
    env,
    ffi::{OsStr, OsString},
    fmt,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Command, Parser};

use crate::vendor;

/// A program's arguments. Bad usage, `--help` and `--version` end the process, with exit codes 2, 0 and 0.
///
/// An environment variable that is set and empty counts as not set.
pub(crate) fn parse<P: Parser>(arguments: impl IntoIterator<Item = OsString>) -> P {
    parse_with(P::command(), &[], arguments)
}

/// The same where the command has been given further arguments, and where some variables have a meaning when empty.
pub(crate) fn parse_with<P: Parser>(
    command: Command,
    meant_empty: &[&str],
    arguments: impl IntoIterator<Item = OsString>,
) -> P {
    check_variables(&command);
    let mut matches = without_empty_variables(command, meant_empty).get_matches_from(arguments);
    P::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.exit())
}

/// Ends the process where a variable is not UTF-8 that must be: clap would not say which.
fn check_variables(command: &Command) {
    for argument in command.get_arguments() {
        let is_path = argument.get_value_parser().type_id() == TypeId::of::<PathBuf>();
        if let Some(variable) = argument.get_env().filter(|_| !is_path)
            && let Some(value) = env::var_os(variable)
            && value.to_str().is_none()
        {
            vendor::refuse_bytes(variable, &value);
        }
    }
    command.get_subcommands().for_each(check_variables);
}

fn without_empty_variables(command: Command, except: &[&str]) -> Command {
    let counts_as_unset = |variable: &OsStr| {
        !except.iter().any(|name| variable == *name) && env::var_os(variable).is_some_and(|value| value.is_empty())
    };
    command
        .mut_args(|argument| match argument.get_env() {
            Some(variable) if counts_as_unset(variable) => argument.env(None::<&str>),
            _ => argument,
        })
        .mut_subcommands(|command| without_empty_variables(command, except))
}

/// Runs a program: 0 if it succeeds, 1 and one message on standard error if not; 2 where that is [`BadUsage`].
pub(crate) fn run(program: impl FnOnce() -> anyhow::Result<()>) -> ExitCode {
    match program() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell if standard error is closed.
            let _ = writeln!(io::stderr(), "error: {}", chain(&error));
            if error.is::<BadUsage>() {
                ExitCode::from(2)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// Settings that cannot be meant and that clap lets pass: they come of a file, or only do not go together.
#[derive(Debug)]
pub(crate) struct BadUsage(String);

impl BadUsage {
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self(message.to_string())
    }
}

impl fmt::Display for BadUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUsage {}

/// Refuses a path that depends on where the program was started.
#[cfg(any(feature = "gpuctl", feature = "toolkit"))]
pub(crate) fn check_absolute(flag: &str, path: &std::path::Path) -> Result<(), BadUsage> {
    if path.is_absolute() {
        return Ok(());
    }
    let path = path.display();
    Err(BadUsage::new(format_args!(
        "`{flag}` takes an absolute path, not `{path}`"
    )))
}

/// Writes to standard output; a reader that has seen enough (`| head`) is no failure.
pub(crate) fn print(text: impl fmt::Display) -> anyhow::Result<()> {
    match write!(io::stdout().lock(), "{text}").and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("cannot write to standard output"))
        }
        _ => Ok(()),
    }
}

/// Writes a remark to standard error, so that standard output stays what was asked for.
pub(crate) fn remark(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// An error and its causes in one line, each said once: some libraries repeat the cause in their own message.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_its_parent_repeats_is_said_once() {
        let error = anyhow::anyhow!("no such file")
            .context("cannot load: no such file")
            .context("cannot start");
        assert_eq!(chain(&error), "cannot start: cannot load: no such file");
    }
}
