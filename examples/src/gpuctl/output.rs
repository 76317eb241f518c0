use clap::ValueEnum;
use serde::Serialize;

use crate::program::print;

/// How a value is printed.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Output {
    Json,
    Yaml,
    Table,
}

impl Output {
    /// Prints a value to standard output; `table` makes the form for people.
    pub(super) fn print<T: Serialize>(self, value: &T, table: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        print(match self {
            Self::Json => serde_json::to_string_pretty(value)? + "\n",
            Self::Yaml => serde_saphyr::to_string(value)?,
            Self::Table => table(value),
        })
    }
}
