//! Settings as the vendor's programs read them.

use std::{env, ffi::OsStr};

use clap::error::ErrorKind;

#[cfg(feature = "toolkit")]
pub(crate) use self::unsupported::{Unsupported, understand};

#[cfg(feature = "toolkit")]
mod unsupported;

/// The words for false of Go's `strconv.ParseBool`, and nothing at all.
pub(crate) const FALSE: &[&str] = &["", "0", "f", "F", "false", "False", "FALSE"];
const TRUE: &[&str] = &["1", "t", "T", "true", "True", "TRUE"];

/// A boolean as Go reads it.
pub(crate) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "" => Err("expected true or false".to_owned()),
        text if TRUE.contains(&text) => Ok(true),
        text if FALSE.contains(&text) => Ok(false),
        _ => Err(format!("`{text}` is neither true nor false")),
    }
}

/// An environment variable; empty if it is not set.
pub(crate) fn env(name: &str) -> String {
    env_or(name, "")
}

/// An environment variable, or this if it is empty or not set. One that is not UTF-8 ends the program with bad usage.
pub(crate) fn env_or(name: &str, default: &str) -> String {
    match env::var(name) {
        Ok(value) if !value.is_empty() => value,
        Ok(_) | Err(env::VarError::NotPresent) => default.to_owned(),
        Err(env::VarError::NotUnicode(value)) => refuse_bytes(OsStr::new(name), &value),
    }
}

/// Ends the program with bad usage because of a variable that is not UTF-8.
pub(crate) fn refuse_bytes(name: &OsStr, value: &OsStr) -> ! {
    let message = format!("the variable `{}` is not UTF-8: {}\n", name.display(), value.display());
    clap::Error::raw(ErrorKind::InvalidUtf8, message).exit()
}
