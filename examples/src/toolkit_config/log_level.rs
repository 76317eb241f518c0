use std::{fmt, str::FromStr};

/// How much a message of the runtime matters, the most important first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LogLevel {
    Error,
    Warning,
    Info,
    Debug,
}

impl FromStr for LogLevel {
    type Err = UnknownLogLevel;

    /// The names are those of the vendor's programs, more than there are levels here, in any case.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Ok(match name.to_ascii_lowercase().as_str() {
            "panic" | "fatal" | "error" => Self::Error,
            "warn" | "warning" => Self::Warning,
            "info" => Self::Info,
            "debug" | "trace" => Self::Debug,
            _ => return Err(UnknownLogLevel(name.to_owned())),
        })
    }
}

/// A name that is none of a log level.
#[derive(Debug)]
pub(crate) struct UnknownLogLevel(String);

impl fmt::Display for UnknownLogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        write!(f, "there is no log level `{name}`: it is error, warning, info or debug")
    }
}

impl std::error::Error for UnknownLogLevel {}
