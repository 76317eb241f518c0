use clap::{Arg, ArgAction, Command, builder::ValueParser};

use super::FALSE;

/// A setting of the vendor's program that ours lacks: an environment variable, and the flag of the same name in small
/// letters with dashes.
#[derive(Debug)]
pub(crate) struct Unsupported {
    /// The environment variable.
    pub(crate) variable: &'static str,
    /// The values that ask for nothing.
    pub(crate) harmless: &'static [&'static str],
}

impl Unsupported {
    fn argument(&self) -> Arg {
        let flag = self.variable.to_ascii_lowercase().replace('_', "-");
        let harmless = self.harmless;
        let parse = move |text: &str| match text {
            text if harmless.contains(&text) => Ok(text.to_owned()),
            _ => Err("it is not supported by this program"),
        };
        let argument = Arg::new(self.variable)
            .long(flag)
            .env(self.variable)
            .action(ArgAction::Set)
            .value_parser(ValueParser::new(parse))
            .hide(true);
        if harmless == FALSE {
            argument
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
        } else {
            argument
        }
    }
}

/// Lets a program understand these settings, as flags and as environment variables, and refuse what it would not do as bad
/// usage.
pub(crate) fn understand(command: Command, settings: &[Unsupported]) -> Command {
    command.args(settings.iter().map(Unsupported::argument))
}
