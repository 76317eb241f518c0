//! The YAML files of a node, read with the line of what is wrong.

use serde::{Deserialize, de::DeserializeOwned};

/// What is wrong with a file, and in which line where that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) line: Option<u64>,
    pub(crate) message: String,
}

/// The version alone: a file of another one may hold anything else.
#[derive(Deserialize)]
struct Version {
    version: serde_saphyr::Spanned<u32>,
}

/// Reads a file that begins with the version of its format, which has to be `known`.
pub(crate) fn read<T: DeserializeOwned>(text: &str, known: u32) -> Result<T, Fault> {
    let Version { version } = serde_saphyr::from_str(text).map_err(|error| fault(&error))?;
    if version.value != known {
        let found = version.value;
        return Err(Fault {
            line: Some(version.referenced.line()),
            message: format!(
                "version {found} of this format is not known, only {known}: make the node anew, or use the gpu-sim that wrote it"
            ),
        });
    }
    serde_saphyr::from_str(text).map_err(|error| fault(&error))
}

fn fault(error: &serde_saphyr::Error) -> Fault {
    let line = error.location().map(|place| place.line());
    // The place has a field of its own.
    let message = error.without_snippet().to_string();
    let message = message.split(" at line ").next().unwrap_or_default().to_owned();
    Fault { line, message }
}
